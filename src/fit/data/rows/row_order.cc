#include "data/rows/row_order.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/quote.h"
#include "data/table/dates.h"

namespace penstock::data {

double date_in(const Field& field, const std::string& column, DateForm form, const TableHeader& header, char decimal) {
  if (field.is_missing()) {
    fail_with(ErrorCode::bad_input, undated_advice(), "{}:{}:{}: column {}: the date is missing", header.source(),
              field.line, field.column, in_quotes(column));
  }
  const auto seconds = field.date(form, decimal);
  if (!seconds) {
    fail_with(ErrorCode::bad_input, undated_advice(), "{}:{}:{}: column {}: {} is no date in the form of training",
              header.source(), field.line, field.column, in_quotes(column), in_quotes(field.text()));
  }
  return *seconds;
}

void RowOrder::check(double before, double now, const Field& field, const std::string& source) const {
  constexpr double most_missing = 10'000.0;  // rows that a model reads for one that is there
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::bad_input, "{}:{}:{}: column {}: {} {}", source, field.line, field.column, in_quotes(dates_.column),
         in_quotes(field.text()), why);
  };
  if (dates_.seconds_between(before, now) < 0.0) refuse("is earlier than the row before");
  if (dates_.irregular == Irregular::refuse && !dates_.is_regular(before, now)) {
    refuse("is not one step after the row before, and training refused such rows");
  }
  const double lacking = dates_.irregular == Irregular::fill ? dates_.missing_between(before, now) : 0.0;
  if (lacking > most_missing) refuse(fmt::format("comes after {:.0f} missing rows, too many to insert", lacking));
}

void RowOrder::check_step(double before, double now, const Field& field, const TableHeader& header,
                          std::size_t position) {
  const std::string mistake = steps_.see(before, now);
  if (mistake.empty()) return;
  fail(ErrorCode::bad_input, "{}:{}: by the dates of column {} {}", header.source(), field.line,
       in_quotes(header.names()[position]), mistake);
}

void RowOrder::check_direction(double before, double now, const Field& field, const TableHeader& header,
                               std::size_t position) {
  constexpr Index fewest = 3;  // that are no accident
  later_ += now > before ? 1 : 0;
  earlier_ += now < before ? 1 : 0;
  if (later_ > 0 || earlier_ < fewest) return;
  fail(ErrorCode::bad_input,
       "{}:{}: the dates of column {} are descending, and a series is read from old to new: sort the rows by it",
       header.source(), field.line, in_quotes(header.names()[position]));
}

}  // namespace penstock::data
