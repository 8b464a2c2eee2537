#include <algorithm>

#include "penstock/score.h"
#include "train/series_rows.h"

namespace penstock {

namespace {

/// The targets of a row, raw: by the column of the input where the model reads them, as a stream would know them.
std::vector<double> raw_targets(const DataDescription& data, const training::SeriesRows& series, Index row) {
  const std::size_t inputs = data.inputs.size(), targets = data.targets.size();
  std::vector<double> values;
  for (std::size_t c = 0; c < targets; ++c) {
    const auto input = std::ranges::find(data.inputs, data.targets[c].name, &Column::name);
    const auto place = static_cast<std::size_t>(input - data.inputs.begin());
    values.push_back(place < inputs ? input->raw(static_cast<double>(series.inputs()[row * inputs + place]))
                                    : data.targets[c].raw(static_cast<double>(series.targets()[row * targets + c])));
  }
  return values;
}

}  // namespace

std::vector<ColumnScore> score_held_out(const Model& model, const Dataset& dataset, const Execution& execution,
                                        const ForecastWatcher& watch) {
  const training::SeriesRows* const series = training::SeriesRows::of(dataset);
  const DataDescription& data = model.data();
  if (series == nullptr || series->training_rows() >= series->rows()) return {};
  ForecastScorer scorer(data);
  const Index first = series->training_rows() - 1;  // whose forecasts are of held-out rows alone
  Index row = 0;
  const auto add = [&](std::span<const double> forecast) {
    const std::vector<double> values = raw_targets(data, *series, row);
    scorer.add(values, forecast);
    if (watch) watch(values, forecast);
  };
  const auto lead_in = [&](Index end) {
    for (; row < end; ++row) add({});
  };
  std::vector<double> forecasts(static_cast<std::size_t>(data.output_size()));
  training::forecast_rows(
      model, *series, first, execution,
      [&](Index begin) {
        if (row == 0) row = begin;  // files before that are no past
        scorer.begin_file();
      },
      [&](Index at, std::span<const float> normalised) {
        lead_in(at);
        for (std::size_t i = 0; i < forecasts.size(); ++i) {
          forecasts[i] = data.targets[i % data.targets.size()].raw(static_cast<double>(normalised[i]));
        }
        add(forecasts);
        ++row;
      });
  return scorer.scores();
}

}  // namespace penstock
