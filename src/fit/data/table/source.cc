#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/lower_case.h"
#include "data/data_file.h"
#include "data/dataset.h"
#include "data/table/csv.h"
#include "data/table/json_table.h"
#include "data/table/table_format.h"
#include "data/table/text_columns.h"
#include "data/table/ts_file.h"
#include "data/text_encoding.h"
#include "data/unpack.h"
#include "penstock/data/dataset.h"
#include "penstock/data/labelled.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/source.h"

namespace penstock {
namespace {

constexpr std::size_t head_bytes = std::size_t{1} << 16;

/// Returns the head of a file that shows its kind, up to the end of a line.
std::string table_head(const std::string& path) {
  std::string head = io::read_data_head(path, head_bytes);
  const bool cut = head.size() == head_bytes;
  if (data::is_json_table(path)) return data::table_of_json(head, path, cut);
  if (cut) head.resize(head.rfind('\n') + 1);
  return head;
}

/// The names in the header of a table, as far as its beginning shows them. Only to tell the kinds apart: what is wrong
/// with the file, if anything, its reader says better.
std::vector<std::string> column_names(const std::string& path, const TableFormat& format) {
  std::vector<std::string> names;
  try {
    const std::string head = table_head(path);
    const data::FoundFormat found = data::find_format(head, format);
    std::vector<data::Field> fields;
    data::CsvReader(std::string_view(head).substr(found.skipped), found.delimiter, path).next(fields);
    for (const data::Field& field : fields) names.push_back(field.text());
  } catch (const Error&) {
    names.clear();
  }
  return names;
}

/// Programs in TypeScript have the same extension as the archive's files.
bool names_series(std::string_view content) {
  const std::string head = lower_case(content.substr(0, head_bytes));
  return head.find("@data") != head.npos || head.find("@problemname") != head.npos;
}

bool is_named_table(const std::string& path) {
  const std::string extension = io::data_extension(path);
  return extension == ".csv" || extension == ".tsv" || extension == ".tab" || extension == ".psv";
}

/// Returns whether the first lines of a file look like a table, if its name says nothing.
bool looks_like_table(const std::string& path) {
  constexpr std::array open{"", ".txt", ".dat", ".data", ".asc", ".out"};
  if (std::ranges::find(open, io::data_extension(path)) == open.end()) return false;
  try {
    return data::looks_like_table(table_head(path));
  } catch (const Error&) {
    return false;  // opening it reports the error
  }
}

/// Returns whether a JSON file has a row for each object, but no number in it: a corpus of texts.
bool is_corpus(const std::string& path) {
  try {
    const std::string head = table_head(path);
    const data::FoundFormat found = data::find_format(head, {});
    data::CsvReader rows(std::string_view(head).substr(found.skipped), found.delimiter, path);
    std::vector<data::Field> fields;
    const auto is_number = [](const data::Field& field) {
      double value = 0.0;
      const auto& text = field.text();
      return std::from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + text.size() &&
             !text.empty();
    };
    for (rows.next(fields); rows.next(fields);) {
      if (std::ranges::any_of(fields, is_number)) return false;
    }
    return true;
  } catch (const Error&) {
    return false;  // opening it reports the error
  }
}

}  // namespace

Sources files_of(const Sources& sources) { return io::files_to_read(sources); }

std::string read_source(const std::string& path) { return io::as_utf8(io::read_data_file(path, largest_source), path); }

bool is_converted_table(const std::string& path) {
  return io::data_extension(path) == ".ts" || data::is_json_table(path);
}

std::string read_table(const std::string& path) {
  std::string content = read_source(path);
  if (data::is_json_table(path)) return data::table_of_json(content, path);
  const bool series = io::data_extension(path) == ".ts" && names_series(content);
  return series ? data::table_of_ts(content, path) : content;
}

bool is_encoded(std::string_view beginning) {
  return io::packing_of(beginning) != io::Packing::none || io::is_utf16(beginning);
}

std::string decoded(const std::string& content, const std::string& name) {
  const bool packed = io::packing_of(content) != io::Packing::none;
  return io::as_utf8(packed ? io::decompress(content, name, largest_source) : content, name);
}

bool holds_labelled_texts(const Sources& sources, const TableFormat& format, const std::string& label_column) {
  try {
    const Sources files = io::expand_folders(sources);
    if (files.empty()) return false;
    const data::OpenTable table(Table{files.front(), table_head(files.front())}, format);
    return data::find_text_columns(table, {}, label_column).has_value();
  } catch (const Error&) {
    return false;  // opening it reports the error
  }
}

bool is_unnamed_table(const Sources& sources) {
  const Sources files = io::expand_folders(sources);
  return !files.empty() && looks_like_table(files.front());
}

bool is_named_table(const Sources& sources) {
  constexpr std::array others{".arff", ".geojson", ".libsvm", ".svm"};
  const Sources files = io::expand_folders(sources);
  if (files.empty()) return false;
  const bool other = std::ranges::find(others, io::data_extension(files.front())) != others.end();
  return other || is_named_table(files.front()) || is_converted_table(files.front());
}

SourceKind guess_kind(const Sources& sources, const TableFormat& format) {
  Sources files;
  try {
    files = io::expand_folders(sources);
  } catch (const Error&) {
    return SourceKind::text;  // opening it reports the error
  }
  if (files.empty()) return SourceKind::text;
  if (io::data_extension(files.front()) == ".ts" && names_series(io::read_data_head(files.front(), head_bytes)))
    return SourceKind::labelled;
  const bool json = data::is_json_table(files.front());
  if (!json && !is_named_table(files.front()) && !looks_like_table(files.front())) return SourceKind::text;
  const LabelledOptions names;
  const auto columns = column_names(files.front(), format);
  // "Sequence" and "Label" are no series either: opening them says how they are asked for.
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(columns, [&](const std::string& column) { return lower_case(column) == name; });
  };
  if (has(names.sequence_column) && has(names.label_column)) return SourceKind::labelled;
  if (holds_labelled_texts(files, format)) return SourceKind::labelled_texts;
  return json && is_corpus(files.front()) ? SourceKind::text : SourceKind::series;
}

}  // namespace penstock
