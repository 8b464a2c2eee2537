#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/description/column.h"

namespace penstock::data {

/// A column with mean and standard deviation of its values. One that never changes gets scale 1: it carries nothing,
/// and must not be divided by zero or by rounding noise. Throws Error(bad_input), naming `source` and the column, if
/// the values are too large to have a mean and a spread.
Column fit_column(std::string name, std::span<const double> values, std::string_view source);

/// Makes the scale of a column that was fitted to the values of one or more series the root mean square of its change
/// over 1 to `horizon` rows, of which at least one must have more than `horizon`. As above if it never changes.
void fit_changes(Column& column, std::span<const std::vector<double>> series, Index horizon);

/// Throws Error(bad_input) for a value that no model can compute with.
[[noreturn]] void refuse_far(double raw, const Column& column, std::string_view source, Index line);

/// A raw value as the model sees it. Throws Error(bad_input), naming place and column, if that is beyond `furthest`.
float normalise(double raw, const Column& column, std::string_view source, Index line,
                double furthest = Column::furthest);

}  // namespace penstock::data
