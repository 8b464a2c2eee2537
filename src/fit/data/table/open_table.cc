#include "data/table/open_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/data_file.h"
#include "data/dataset.h"
#include "data/table/column_choice.h"
#include "data/table/json_table.h"
#include "data/text_encoding.h"
#include "penstock/data/source.h"
#include "penstock/stop.h"

namespace penstock::data {
namespace {

void refuse_binary(const std::string& content, const std::string& path) {
  const std::string kind = io::binary_kind(content);
  if (kind.empty()) return;
  throw Error(ErrorCode::bad_input,
              fmt::format("{}: this is {}, not a table in text{}", path, kind, io::table_advice(kind)),
              {.value = kind, .allowed = "a table in text"});
}

CsvReader reader_of(const std::string& content, const FoundFormat& format, std::string_view source) {
  return {std::string_view(content).substr(format.skipped), format.delimiter, source, format.first_line};
}

TableHeader read_header(const std::string& content, const FoundFormat& format, const std::string& path) {
  std::vector<Field> fields;
  if (!reader_of(content, format, path).next(fields)) {
    fail(ErrorCode::bad_input, "{}: the file is empty; it must start with the names of its columns", path);
  }
  return {fields, path, format.decimal, format.header};
}

std::vector<Table> read_tables(const TableSources& sources) {
  std::vector<Table> tables = sources.tables;
  if (!tables.empty()) return tables;
  for (const std::string& path : io::files_to_read(sources.paths)) {
    tables.push_back({path, read_table(path)});
    refuse_binary(tables.back().text, path);
  }
  return tables;
}

}  // namespace

OpenTable::OpenTable(const TableSources& sources, const TableFormat& format) {
  std::vector<Table> tables = read_tables(sources);
  require(!tables.empty(), "sources must name at least one file");
  for (Table& table : tables) {
    sources_.push_back(table.name);
    TableFormat given = format;
    // One column more or less of a guess would be another table: the first file decides for all.
    if (!files_.empty()) given = {files_[0].format.delimiter, files_[0].format.decimal, files_[0].format.header};
    File file = table.columns ? open_columns(table, given) : open_text(table, given);
    if (!files_.empty() && file.header.names() != header().names()) {
      fail(ErrorCode::bad_input, "{}:1:1: the columns are {}, those of {} are {}", table.name, file.header.list(),
           sources_.front(), header().list());
    }
    files_.push_back(std::move(file));
  }
}

OpenTable::File OpenTable::open_columns(const Table& table, const TableFormat& given) {
  const FoundFormat found = find_format(*table.columns, given);
  return {{}, table.columns, found, {table.columns->header(), table.name, found.decimal, found.header}};
}

OpenTable::File OpenTable::open_text(Table& table, TableFormat given) {
  if (!io::is_utf8(table.text)) {
    table.text = io::windows_1252_to_utf8(table.text);
    windows_1252_ = true;
  }
  const bool json = is_json_table(table.name);
  if (json) given.header = given.header.value_or(true);  // names may look like values
  FoundFormat found = find_format(table.text, given);
  if (json) found.first_line -= json_table_header;
  TableHeader header = read_header(table.text, found, table.name);
  return {std::move(table.text), nullptr, found, std::move(header)};
}

TableRows OpenTable::rows() const { return TableRows(*this); }

std::size_t OpenTable::column(const std::string& name, const char* argument) const {
  return header().column(name, argument);
}

std::vector<std::size_t> OpenTable::columns(const std::vector<std::string>& names, const char* argument) const {
  std::vector<std::size_t> columns;
  for (const auto& name : names) {
    const std::size_t found = column(name, argument);
    require_about(std::find(columns.begin(), columns.end(), found) == columns.end(), argument,
                  ": column {} is there twice", in_quotes(name));
    columns.push_back(found);
  }
  return columns;
}

std::vector<std::size_t> OpenTable::add_categories(CategoryColumn column) {
  for (File& file : files_) {
    if (&file == &files_.front()) continue;
    for (const std::string& text : column.texts) file.header.add_category(column.column, text);
  }
  return categories_.add(files_.front().header, std::move(column));
}

void OpenTable::leave_out(const std::vector<Index>& rows) {
  for (const Index row : rows) {
    const auto place = static_cast<std::size_t>(row);
    if (left_out_.size() <= place) left_out_.resize(place + 1, false);
    left_out_[place] = true;
  }
}

OpenTable::Choice OpenTable::choose_columns(const ColumnQuestion& question) const {
  ColumnChooser chooser(header(), format().decimal, question);
  TableRows rows(*this);
  if (!rows.next()) fail(ErrorCode::bad_input, "{}: no rows after the header", header().source());
  do {
    if (rows.starts_file()) chooser.restart();
    chooser.look(rows.fields());
  } while (!chooser.decided() && rows.next());
  try {
    return chooser.choice();
  } catch (const Error&) {
    if (question.only.empty()) refuse_units();
    throw;
  }
}

void OpenTable::refuse_units() const {
  const auto numeric = [&](const Field& field) { return header().looks_numeric(field); };
  TableRows rows(*this);
  if (!rows.next() || std::ranges::any_of(rows.fields(), numeric)) return;
  const std::vector<Field> first = rows.fields();
  if (!rows.next()) return;
  const auto number = std::ranges::find_if(rows.fields(), numeric);
  if (number == rows.fields().end()) return;
  const auto column = static_cast<std::size_t>(number - rows.fields().begin());
  fail(ErrorCode::bad_input,
       "{}:{}:{}: column {}: {} is no number, unlike {} below it: if this is a line of units, leave it out",
       header().source(), first[column].line, first[column].column, in_quotes(header().names()[column]),
       in_quotes(first[column].text()), in_quotes(number->text()));
}

/// Describes the words of truth values, except true and false, which are plain.
std::string OpenTable::describe_truths(const Choice& choice) const {
  std::vector<std::string> all;
  for (const TruthColumn& truth : choice.truths) {
    if (lower_case(truth.yes) == "true") continue;
    all.push_back(fmt::format("{} ({} as 1, {} as 0)", header().names()[truth.column], truth.yes, truth.no));
  }
  return all.empty() ? "" : "truth values in " + list_of(std::move(all));
}

std::vector<Message> OpenTable::reading(const std::vector<std::size_t>& read, const Choice& choice) const {
  std::vector<Message> findings;
  if (windows_1252_) findings.emplace_back("as text in Windows-1252, because it is not UTF-8");
  if (const std::string text = describe(format()); !text.empty()) findings.push_back(text);
  if (!choice.left_out.empty()) {
    std::vector<std::string> all;
    for (const LeftOut& column : choice.left_out) {
      all.push_back(fmt::format("{} ({})", header().names()[column.column], column.reason));
    }
    const auto numbers = std::ranges::count_if(read, [&](std::size_t column) { return column < header().width(); });
    const std::string used = counted(static_cast<std::size_t>(numbers) + choice.categories.size(), "column");
    findings.push_back(fmt::format("{} read, {} left out: {}", used, choice.left_out.size(), list_of(all)));
  }
  for (const auto& [column, texts] : choice.categories) {
    const std::string count = texts.size() == 1 ? "a category" : fmt::format("{} categories", texts.size());
    findings.push_back(fmt::format("{} as {}: {}", header().names()[column], count, list_of(texts)));
  }
  if (const std::string truths = describe_truths(choice); !truths.empty()) findings.push_back(truths);
  if (files_.size() > 1) findings.push_back(fmt::format("{} files", files_.size()));
  return findings;
}

void TableRows::open(std::size_t file) {
  const OpenTable::File& opened = table_.files_[file];
  opened_ = true;
  file_ = file;
  place_ = 0;
  if (opened.columns) return;
  reader_.emplace(reader_of(opened.content, opened.format, opened.header.source()));
  if (opened.format.header) reader_->next(fields_);
}

bool TableRows::read_file() {
  const OpenTable::File& file = table_.files_[file_];
  return file.columns ? file.columns->read(place_++, fields_) : reader_->next(fields_);
}

bool TableRows::read() {
  while (!read_file()) {
    if (file_ + 1 == table_.files_.size()) return false;
    open(file_ + 1);
  }
  header().check_width(fields_);
  return true;
}

bool TableRows::next() {
  constexpr std::size_t rows_between_stops = 1024;
  if (row_ % rows_between_stops == 0) stop_if_asked();
  const auto& left_out = table_.left_out_;
  do {
    if (!read()) return false;
  } while (row_++ < left_out.size() && left_out[row_ - 1]);
  starts_file_ = std::exchange(opened_, false);
  (void)table_.categories_.extend(fields_);
  return true;
}

}  // namespace penstock::data
