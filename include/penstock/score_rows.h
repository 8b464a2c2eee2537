#pragma once

#include <string>
#include <vector>

#include "penstock/rows.h"
#include "penstock/score.h"

/// How well a model does on the rows of a table whose answers are known.
namespace penstock {

struct SeriesScoring {
  Index lead = 0;  ///< Forecasts behind this row and all later ones count; rows count from 1 behind the header, 0: all.
  std::vector<double> levels = {0.1, 0.5, 0.9};  ///< Of quantiles, ascending.
  ForecastWatcher watch = {};                    ///< Is shown every row, and what was forecast from it if that counts.
};

struct SeriesScore {
  std::vector<ColumnScore> columns;
  std::vector<GroupScore> groups;       ///< Of each series by itself, of a model that knows them by name.
  std::vector<std::string> new_groups;  ///< Names of those that training did not see ...
  Index scaled_by = 0;                  ///< ... and so are scaled by so many first rows of theirs; 0: by all.
  Index longest = 0;                    ///< Rows of the longest series.
};
/// Forecasts compared with the rows that follow.
SeriesScore score_series(const Model& model, Rows& rows, const SeriesScoring& options, const Execution& execution = {});
/// Every sequence by its label, which is the first column that `rows` keep.
LabelScore score_labelled(const Model& model, Rows& rows, const Execution& execution = {});

/// The names of series that training did not see.
std::vector<std::string> new_groups(const std::vector<GroupedRows>& groups);

}  // namespace penstock
