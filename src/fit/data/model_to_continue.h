#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/series.h"
#include "penstock/data_description.h"

/// Data for a model that is trained further: what they take from the description of its data.
namespace penstock::data {

/// Throws Error(incompatible) unless a model with such data is for this use: "series", "sound", "labelled sequences".
void check_origin_use(const DataDescription& origin, std::string_view use, const std::string& source);

/// Options that open a series as the model reads it. Throws Error(incompatible) if missing values are not to be treated
/// as an input that the model has.
SeriesOptions options_of(const DataDescription& origin, SeriesOptions options);

/// The names of the inputs that are values.
std::vector<std::string> value_names(const std::vector<Column>& columns);

/// Gives columns that were fitted to new data the mean and scale of the model's columns of the same names. Throws
/// Error(incompatible) for values so far from the model's that they must be in another unit.
void take_scaling(DataDescription& fitted, const DataDescription& origin, const std::string& source);

/// Throws Error(incompatible) if rows are at another step than those that the model learnt, such as hours for days.
void check_step(const RowDates& here, const RowDates& origin, const std::string& source);

/// Returns whether a model reads this feature of a column.
bool reads(const DataDescription& origin, const std::string& column, Feature feature);

}  // namespace penstock::data
