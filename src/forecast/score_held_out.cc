#include <algorithm>
#include <optional>
#include <utility>

#include "data/series/series_rows.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/forecast/score.h"
#include "penstock/spread_tracker.h"

namespace penstock {

namespace {

/// The scorer of one group, or of all files where there are none, which sees one segment after the other.
class HeldOutScorer {
 public:
  HeldOutScorer(const Model& model, const training::SeriesRows& series, DataDescription data, std::string name)
      : model_(model),
        series_(series),
        data_(std::move(data)),
        name_(std::move(name)),
        scorer_(data_),
        tracker_(data_) {}

  void add(const training::Segment& segment, const Execution& execution, const ForecastWatcher& watch) {
    scorer_.begin_file();
    tracker_.reset();
    const Index inputs = data_.input_size(), first = segment.training_end - 1;  // forecasts held-out rows alone
    std::vector<double> forecasts;
    training::forecast_segment(
        model_, series_, segment, segment.first, execution, [&](Index row, std::span<const float> normalised) {
          const std::vector<double> values = series_.known_values(row, static_cast<Index>(data_.targets.size()));
          tracker_.add(series_.inputs().subspan(row * inputs, inputs), normalised, values);
          if (watch) data_.series.spread = tracker_.spread();
          forecasts.resize(row < first ? 0 : normalised.size());
          for (std::size_t i = 0; i < forecasts.size(); ++i) {
            forecasts[i] = data_.targets[i % data_.targets.size()].raw(static_cast<double>(normalised[i]));
          }
          scorer_.add(values, forecasts, tracker_.widths());
          if (!watch) return;
          const Index behind = segment.end + segment.to_come - 1 - row;
          watch(name_, data_, values, forecasts, series_.date(row), data_.lacking_ahead(behind));
        });
  }

  GroupScore score() const { return {.group = name_, .columns = scorer_.scores()}; }

 private:
  const Model& model_;
  const training::SeriesRows& series_;
  DataDescription data_;  // with the scaling of the group, and the spread of the latest forecasts
  std::string name_;
  ForecastScorer scorer_;
  SpreadTracker tracker_;
};

}  // namespace

std::vector<GroupScore> score_groups_held_out(const Model& model, const Dataset& dataset, const Execution& execution,
                                              const ForecastWatcher& watch) {
  const training::SeriesRows* const series = dataset.series_rows();
  std::vector<GroupScore> scores;
  if (series == nullptr) return scores;
  const training::SegmentDescriptions descriptions(model.data());
  std::optional<HeldOutScorer> scorer;
  Index group = 0;
  const auto finish = [&] {
    if (scorer) scores.push_back(scorer->score());
    if (!scores.empty() && scores.back().columns.empty()) scores.pop_back();
  };
  // The segments of a group stand one behind the other.
  for (const training::Segment& segment : series->segments()) {
    if (segment.held_out() == 0) continue;
    if (!scorer || segment.group != group) {
      finish();
      group = segment.group;
      const DataDescription& data = model.data();
      scorer.emplace(model, *series, descriptions.of(segment), group < 0 ? "" : data.series.groups[group].name);
    }
    scorer->add(segment, execution, watch);
  }
  finish();
  return scores;
}

std::vector<ColumnScore> score_held_out(const Model& model, const Dataset& dataset, const Execution& execution,
                                        const ForecastWatcher& watch) {
  return score_all(score_groups_held_out(model, dataset, execution, watch));
}

}  // namespace penstock
