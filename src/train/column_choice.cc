#include "train/column_choice.h"

#include "base/check.h"
#include "base/lower_case.h"
#include "train/dates.h"

namespace penstock::data {

ColumnChooser::ColumnChooser(const CsvHeader& header, char decimal, const std::vector<std::size_t>& excluded)
    : header_(header), decimal_(decimal), columns_(header.names().size()), undecided_(columns_.size()) {
  for (const std::size_t column : excluded) {
    columns_[column].kind = Kind::excluded;
    columns_[column].done = true;
    --undecided_;
  }
}

void ColumnChooser::look(const std::vector<CsvField>& row) {
  ++rows_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!columns_[i].done) look(row[i].text, i);
  }
}

void ColumnChooser::look(const std::string& text, std::size_t column) {
  Seen& seen = columns_[column];
  if (is_missing(text)) return;
  if (seen.kind == Kind::unknown) {
    seen.first = text;
    // 20200304 is a number unless its column says otherwise.
    seen.kind = header_.looks_numeric(text)    ? Kind::number
                : parse_truth(text)            ? Kind::truth
                : parse_date(text).has_value() ? Kind::date
                                               : Kind::text;
    seen.maybe_dates = seen.kind == Kind::number && may_name_dates(header_.names()[column]);
  }
  if (seen.kind == Kind::truth) {
    look_at_truth(text, seen);
  } else {
    seen.changes = seen.changes || text != seen.first;
  }
  if (seen.maybe_dates) {
    double value = 0.0;
    seen.maybe_dates = parse_number(text, decimal_, value) == std::errc{};
    seen.numbers.push_back(value);
  }
  const bool read = seen.kind == Kind::number || seen.kind == Kind::truth;
  seen.done = !read || (seen.changes && !seen.maybe_dates);
  if (seen.done) --undecided_;
}

/// A pair of opposites makes a column one of truth values: "N" may also be a wind, as another one shows that comes
/// before any "Y".
void ColumnChooser::look_at_truth(const std::string& text, Seen& seen) {
  if (lower_case(text) == lower_case(seen.first)) return;
  seen.changes = true;
  seen.other = text;
  if (!are_opposites(seen.first, text)) seen.kind = Kind::text;
}

std::string ColumnChooser::reason(std::size_t column) const {
  const Seen& seen = columns_[column];
  if (column == 0 && header_.is_unnamed(0) && columns_.size() > 1) return "no name";
  if (seen.kind == Kind::unknown) return "no values";
  if (seen.kind == Kind::date) return "dates";
  const bool half_a_pair = seen.kind == Kind::truth && !seen.changes && !parse_boolean(seen.first);
  if (seen.kind == Kind::text || half_a_pair) return "text";
  if (seen.maybe_dates && number_form(header_.names()[column], seen.numbers)) return "dates";
  return seen.changes || rows_ == 1 ? "" : "always the same";
}

CsvTable::TruthColumn ColumnChooser::truth(std::size_t column) const {
  const Seen& seen = columns_[column];
  const bool yes = parse_truth(seen.first) == 1.0;
  return {column, yes ? seen.first : seen.other, yes ? seen.other : seen.first};
}

CsvTable::Choice ColumnChooser::choice() const {
  CsvTable::Choice choice;
  bool constant = false;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].kind == Kind::excluded) continue;
    const std::string why = reason(i);
    constant = constant || why == "always the same";
    if (why.empty()) {
      choice.columns.push_back(i);
      if (columns_[i].kind == Kind::truth) choice.truths.push_back(truth(i));
    } else {
      choice.left_out.push_back({i, why});
    }
  }
  if (choice.columns.empty() && constant) {
    fail(ErrorCode::bad_input, "{}: no numeric column changes, so there is nothing to learn from among {}",
         header_.source(), header_.list());
  }
  if (choice.columns.empty()) {
    fail(ErrorCode::bad_input, "{}: no numeric column to use as input among {}", header_.source(), header_.list());
  }
  return choice;
}

}  // namespace penstock::data
