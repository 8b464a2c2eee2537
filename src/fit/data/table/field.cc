#include "data/table/field.h"

#include "data/table/dates.h"
#include "data/table/missing_words.h"
#include "data/table/number.h"
#include "data/table/table_columns.h"

namespace penstock::data {

std::string& Field::start(Index at_line, Index at_column) {
  line = at_line;
  column = at_column;
  source_ = nullptr;
  has_text_ = true;
  text_.clear();
  return text_;
}

void Field::refer(const TableColumn& source, std::size_t row, Index at_line, Index at_column) {
  line = at_line;
  column = at_column;
  source_ = &source;
  row_ = row;
  has_text_ = false;
}

const std::string& Field::text() const {
  if (!has_text_) text_ = source_->text(row_);
  has_text_ = true;
  return text_;
}

bool Field::is_missing() const { return source_ != nullptr ? source_->is_missing(row_) : data::is_missing(text_); }

bool Field::is_text() const { return source_ == nullptr || source_->is_text(); }

std::errc Field::number(char decimal, double& value) const {
  const auto found = source_ != nullptr ? source_->number(row_) : std::nullopt;
  if (!found) return is_text() ? parse_number(text(), decimal, value) : std::errc::invalid_argument;
  value = *found;
  return std::errc{};
}

std::optional<double> Field::truth() const { return is_text() ? parse_truth(text()) : source_->truth(row_); }

std::optional<double> Field::date(DateForm form, char decimal) const {
  if (source_ != nullptr && source_->is_time()) return source_->seconds(row_);
  if (form == DateForm::month_first || form == DateForm::day_first) return parse_date(text(), form);
  double value = 0.0;
  return number(decimal, value) == std::errc{} ? date_from_number(value, form) : std::nullopt;
}

std::string_view Field::zone() const {
  if (source_ != nullptr && source_->is_time()) return source_->is_utc() ? "Z" : "";
  return zone_of(text());
}

}  // namespace penstock::data
