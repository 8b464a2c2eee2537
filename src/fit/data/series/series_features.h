#pragma once

#include <string>
#include <vector>

#include "data/series/calendar.h"
#include "data/series/series_table.h"
#include "data/table/open_table.h"
#include "penstock/data_description.h"

/// Inputs of a series that are no values of its rows.
namespace penstock::data {

/// An input, and its value in each row as Column::normal takes it.
struct FeatureValues {
  Column column;
  std::vector<double> values;
};

/// Where dates stand in their cycles, and how long after each other rows are.
std::vector<FeatureValues> date_features(const Calendar& calendar, const std::string& name,
                                         const std::vector<training::Segment>& segments);

/// Returns a feature for each masked column with missing values: 1 where the value is missing. A model that is trained
/// further (`origin`) decides itself which columns have this feature.
std::vector<FeatureValues> missing_features(const OpenTable& table, const SeriesTable& series,
                                            const std::vector<std::size_t>& inputs, bool masks,
                                            const DataDescription* origin);

/// Appends features to each row of the inputs, [rows, I], and to their description.
void add_features(const std::vector<FeatureValues>& features, DataDescription& description, std::vector<float>& inputs);

/// Appends to each row the later values of inputs that are known in advance, for as many rows as are forecast.
void add_ahead(const std::vector<std::size_t>& known, const std::vector<training::Segment>& segments,
               DataDescription& description, std::vector<float>& inputs);

}  // namespace penstock::data
