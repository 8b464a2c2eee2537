#include "train/normalise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

Column fit_column(std::string name, std::span<const double> values, std::string_view source) {
  Column column{std::move(name)};
  const auto count = static_cast<double>(values.size());
  double sum = 0.0;
  double largest = 0.0;
  for (const double value : values) {
    sum += value;
    largest = std::max(largest, std::abs(value));
  }
  column.mean = sum / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - column.mean) * (value - column.mean);
  column.scale = std::sqrt(squares / count);
  if (!std::isfinite(column.mean) || !std::isfinite(column.scale)) {
    fail(ErrorCode::bad_input, "{}: column {}: the values are too large for a mean and a spread", source,
         in_quotes(column.name));
  }
  if (column.scale <= 1e-12 * largest) column.scale = 1.0;
  return column;
}

float normalise(double raw, const Column& column, std::string_view source, Index line) {
  const double value = (raw - column.mean) / column.scale;
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
    fail(ErrorCode::bad_input, "{}:{}: column {}: {} is too far from the values that the model is trained on", source,
         line, in_quotes(column.name), raw);
  }
  return static_cast<float>(value);
}

}  // namespace penstock::data
