#include "data/column_scaling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

namespace {

double largest_of(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// One that never changes gets scale 1, and so does one whose changes are rounding noise.
double scale_of(double deviation, double largest) { return deviation <= 1e-12 * largest ? 1.0 : deviation; }

}  // namespace

Column fit_column(std::string name, std::span<const double> values, std::string_view source) {
  Column column{std::move(name)};
  const auto count = static_cast<double>(values.size());
  double sum = 0.0;
  for (const double value : values) sum += value;
  column.mean = sum / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - column.mean) * (value - column.mean);
  column.scale = std::sqrt(squares / count);
  if (!std::isfinite(column.mean) || !std::isfinite(column.scale)) {
    fail(ErrorCode::bad_input, "{}: column {}: the values are too large for a mean and a spread", source,
         in_quotes(column.name));
  }
  const double largest = largest_of(values);
  constexpr double smallest = 1e-150;  // of which squares are numbers
  if (largest > 0.0 && largest < smallest) {
    fail(ErrorCode::bad_input, "{}: column {}: the values, {} at most, are too small for a spread; give larger units",
         source, in_quotes(column.name), largest);
  }
  column.scale = scale_of(column.scale, largest);
  return column;
}

void fit_changes(Column& column, std::span<const std::vector<double>> series, Index horizon) {
  constexpr Index distances = 32;  // enough for a scale, where every distance would take rows x horizon
  const Index step = (horizon + distances - 1) / distances;
  double squares = 0.0, count = 0.0, largest = 0.0;
  for (const std::vector<double>& values : series) {
    const auto rows = static_cast<Index>(values.size());
    largest = std::max(largest, largest_of(values));
    for (Index ahead = horizon; ahead > 0; ahead -= step) {
      for (Index row = 0; row + ahead < rows; ++row) {
        const double change = (values[row + ahead] - values[row]) / column.scale;  // squares then cannot overflow
        squares += change * change;
        ++count;
      }
    }
  }
  column.scale = scale_of(column.scale * std::sqrt(squares / count), largest);
}

void refuse_far(double raw, const Column& column, std::string_view source, Index line) {
  fail(ErrorCode::bad_input, "{}:{}: column {}: {} is too far from the values that the model is trained on", source,
       line, in_quotes(column.name), raw);
}

float normalise(double raw, const Column& column, std::string_view source, Index line, double furthest) {
  if (column.logarithm && raw <= 0.0) {
    fail(ErrorCode::bad_input, "{}:{}: column {}: {} has no logarithm, by which the model reads this column", source,
         line, in_quotes(column.name), raw);
  }
  const double value = column.normal(raw);
  if (!(std::abs(value) <= furthest)) refuse_far(raw, column, source, line);
  return static_cast<float>(value);
}

}  // namespace penstock::data
