#pragma once

#include <string>
#include <vector>

#include "penstock/classify/labels.h"
#include "penstock/data/rows.h"
#include "penstock/forecast/score.h"

/// Evaluation of a model on the rows of a table with known answers.
namespace penstock {

/// Options of score_series().
struct SeriesScoring {
  /// First row whose forecasts are scored; the rows before only lead in. Rows count from 1 behind the header; 0: all.
  Index lead = 0;
  std::vector<double> levels = {0.1, 0.5, 0.9};  ///< Levels of the quantiles that are scored, ascending.
  ForecastWatcher watch = {};                    ///< Called for every row, with its forecasts if they are scored.
};

/// Scores of a forecast model.
struct SeriesScore {
  std::vector<ColumnScore> columns;     ///< One for each target, over all series.
  std::vector<GroupScore> groups;       ///< One for each series, for a model of many series; otherwise empty.
  std::vector<std::string> new_groups;  ///< Names of the series that training did not see.
  Index scaled_by = 0;                  ///< Number of first rows that give the scaling of new series; 0: all rows.
  Index longest = 0;                    ///< Rows of the longest series.
};
/// Compares the forecasts from each row with the rows that follow. Throws Error(bad_input) for a bad row, a missing
/// target column, or a target that is not a number.
SeriesScore score_series(const Model& model, Rows& rows, const SeriesScoring& options, const Execution& execution = {});
/// Compares the predicted label of every sequence with its true label, which is the first column of RowOptions::keep.
/// Throws Error(bad_input) for a bad row or a label that the model does not know.
LabelScore score_labelled(const Model& model, Rows& rows, const Execution& execution = {});

/// Returns the names of the series that training did not see.
std::vector<std::string> new_groups(const std::vector<GroupedRows>& groups);

}  // namespace penstock
