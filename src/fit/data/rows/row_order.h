#pragma once

#include <cstddef>
#include <string>

#include "data/table/csv.h"
#include "penstock/data/row_steps.h"
#include "penstock/description/row_dates.h"

namespace penstock::data {

/// Returns the date of a field in seconds since the start of 1970. Throws Error(bad_input), which names the column, if
/// it is missing or of another form.
double date_in(const Field& field, const std::string& column, DateForm form, const TableHeader& header, char decimal);

/// Checks that the rows of a stream follow each other in time as those of training did.
class RowOrder {
 public:
  explicit RowOrder(const RowDates& dates) : dates_(dates), steps_(dates) {}

  /// Throws Error(bad_input) for a date that cannot follow the one before: an earlier one, one with too many rows
  /// missing in between, or one at another step than training allowed.
  void check(double before, double now, const Field& field, const std::string& source) const;
  /// Throws Error(bad_input) once the steps show that the rows are not those of training. The dates stand in column
  /// number `position`.
  void check_step(double before, double now, const Field& field, const TableHeader& header, std::size_t position);
  /// Throws Error(bad_input) once the rows stand from new to old: a model would forecast the past. Single rows may be
  /// earlier than the one before.
  void check_direction(double before, double now, const Field& field, const TableHeader& header, std::size_t position);

 private:
  RowDates dates_;
  RowSteps steps_;
  Index later_ = 0, earlier_ = 0;  // dates than the one before
};

}  // namespace penstock::data
