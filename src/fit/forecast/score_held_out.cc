#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "data/series/series_rows.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/forecast/score.h"
#include "penstock/interval_tracker.h"

namespace penstock {

std::vector<GroupScore> score_groups_held_out(const Model& model, const Dataset& dataset, const Execution& execution,
                                              const ForecastWatcher& watch) {
  const training::SeriesRows* const series = dataset.series_rows();
  std::vector<GroupScore> scores;
  if (series == nullptr) return scores;
  const training::SegmentDescriptions descriptions(model.data());
  const std::vector<training::Segment>& segments = series->segments();
  const auto targets = static_cast<Index>(model.data().targets.size()), inputs = model.data().input_size();
  // The segments of a group stand one behind the other; without groups, all files are scored together.
  for (auto first = segments.begin(), end = first; first != segments.end(); first = end) {
    const Index group = first->group;
    end = std::find_if(first, segments.end(), [&](const training::Segment& other) { return other.group != group; });
    const std::string name = group < 0 ? "" : model.data().series.groups[group].name;
    DataDescription data = descriptions.of(*first);  // with the spread of the latest forecasts
    ForecastScorer scorer(data);
    IntervalTracker tracker(data);
    const auto see = [&](const training::Segment& segment, Index row, std::span<const float> normalised) {
      const std::vector<double> values = series->known_values(row, targets);
      tracker.add(series->inputs().subspan(row * inputs, inputs), normalised, values);
      if (watch) data.series.errors = tracker.distribution();
      std::vector<double> forecasts;  // of held-out rows alone
      for (std::size_t i = 0; row >= segment.training_end - 1 && i < normalised.size(); ++i) {
        forecasts.push_back(data.targets[i % data.targets.size()].raw(static_cast<double>(normalised[i])));
      }
      scorer.add(values, forecasts, tracker.widths());
      if (!watch) return;
      const Index behind = segment.end + segment.to_come - 1 - row;
      watch(name, data, values, forecasts, series->date(row), data.lacking_ahead(behind));
    };
    for (auto segment = first; segment != end; ++segment) {
      if (segment->held_out() == 0) continue;
      scorer.begin_file();
      tracker.reset();
      training::forecast_segment(model, *series, *segment, segment->first, execution,
                                 [&](Index row, std::span<const float> normalised) { see(*segment, row, normalised); });
    }
    GroupScore score{.group = name, .columns = scorer.scores()};
    if (!score.columns.empty()) scores.push_back(std::move(score));
  }
  return scores;
}

std::vector<ColumnScore> score_held_out(const Model& model, const Dataset& dataset, const Execution& execution,
                                        const ForecastWatcher& watch) {
  return score_all(score_groups_held_out(model, dataset, execution, watch));
}

}  // namespace penstock
