#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "penstock/score.h"
#include "penstock/spread_tracker.h"
#include "train/series_rows.h"

namespace penstock {

namespace {

/// The targets of a row, raw, as far as they are known: by the column of the input where the model reads them, as a
/// stream would know them.
std::vector<double> raw_targets(const DataDescription& data, const training::SeriesRows& series, Index row) {
  const std::size_t inputs = data.inputs.size(), targets = data.targets.size();
  std::vector<double> values;
  for (std::size_t c = 0; c < targets; ++c) {
    if (!series.is_known(row, static_cast<Index>(c))) {
      values.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const auto input = data.input_of(data.targets[c].name);
    values.push_back(input ? data.inputs[*input].raw(static_cast<double>(series.inputs()[row * inputs + *input]))
                           : data.targets[c].raw(static_cast<double>(series.targets()[row * targets + c])));
  }
  return values;
}

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
          tracker_.add(series_.inputs().subspan(row * inputs, inputs), normalised,
                       series_.known_targets(row, static_cast<Index>(data_.targets.size())));
          if (watch) data_.spread = tracker_.spread();
          forecasts.resize(row < first ? 0 : normalised.size());
          for (std::size_t i = 0; i < forecasts.size(); ++i) {
            forecasts[i] = data_.targets[i % data_.targets.size()].raw(static_cast<double>(normalised[i]));
          }
          const std::vector<double> values = raw_targets(data_, series_, row);
          scorer_.add(values, forecasts, tracker_.widths());
          if (watch) watch(name_, data_, values, forecasts, series_.date(row));
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
  const training::SeriesRows* const series = training::SeriesRows::of(dataset);
  std::vector<GroupScore> scores;
  if (series == nullptr) return scores;
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
      scorer.emplace(model, *series, training::description_of(data, segment),
                     group < 0 ? "" : data.groups[static_cast<std::size_t>(group)].name);
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
