#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "data/series/series_rows.h"
#include "forecast/linear_fits.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/forecast/score.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

/// Sums of squared errors on the hold-out rows of each group.
std::vector<double> held_out_squares(const Model& model, const training::SeriesRows& series,
                                     const Execution& execution) {
  const training::RowErrors found = training::held_out_errors(model, series, execution);
  const std::size_t width = found.errors.size() / std::max<std::size_t>(found.rows.size(), 1);
  std::vector<double> squares(model.data().series.groups.size(), 0.0);
  for (std::size_t i = 0; i < found.errors.size(); ++i) {
    const auto error = static_cast<double>(found.errors[i]);
    if (std::isfinite(error)) squares[series.segment_of(found.rows[i / width]).group] += error * error;
  }
  return squares;
}

}  // namespace

void choose_own_forecasts(Model& model, const Dataset& dataset, const Execution& execution) {
  // Many series have enough rows together, and some lose to a baseline by chance.
  constexpr std::size_t most_groups = 32;
  // A forecast of few rows must be clearly better on as few to be so on the rows to come.
  constexpr double largest_ratio = 0.9 * 0.9;
  const training::SeriesRows* const series = dataset.series_rows();
  std::vector<Group>& groups = model.impl().data.series.groups;
  if (groups.empty() || groups.size() > most_groups) return;
  if (!training::has_linear_forecast(dataset) || !model.spec().corrects_branch()) return;
  const std::vector<GroupScore> scores = score_groups_held_out(model, dataset, execution);
  const std::vector<double> shared = held_out_squares(model, *series, execution);
  for (const GroupScore& score : scores) {
    const auto loses = [](const ColumnScore& column) { return column.model.rmse > column.best_rival().errors.rmse; };
    if (std::ranges::none_of(score.columns, loses)) continue;
    const auto group = std::ranges::find(groups, score.group, &Group::name);
    group->own = training::fit_group(dataset, group - groups.begin(), false);
  }
  const std::vector<double> own = held_out_squares(model, *series, execution);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!(own[i] < largest_ratio * shared[i])) groups[i].own = {};
  }
}

void refit_own_forecasts(Model& model, const Dataset& dataset) {
  std::vector<Group>& groups = model.impl().data.series.groups;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].own.lags > 0) groups[i].own = training::fit_group(dataset, static_cast<Index>(i), true);
  }
}

}  // namespace penstock
