#include "train/series_rows.h"

#include <algorithm>
#include <limits>

namespace penstock::training {

const SeriesRows* SeriesRows::of(const Dataset& data) { return dynamic_cast<const SeriesRows*>(&data); }

void forecast_rows(const Model& model, const SeriesRows& series, Index first, const Execution& execution,
                   const std::function<void(Index row)>& begin, const ForecastSink& sink) {
  constexpr Index most_steps = 1024;  // of one call: bounds the memory, and fills the matrix products
  const Index inputs = model.data().input_size(), outputs = model.data().output_size();
  std::vector<Index> bounds = {0};
  bounds.insert(bounds.end(), series.starts().begin(), series.starts().end());
  bounds.push_back(series.rows());
  std::vector<float> forecasts;
  for (std::size_t file = 0; file + 1 < bounds.size(); ++file) {
    const Index end = bounds[file + 1];
    if (end <= first) continue;
    begin(bounds[file]);
    ModelState state = model.state(1);
    for (Index row = bounds[file]; row < end;) {
      const Index steps = std::min(most_steps, end - row);
      forecasts.resize(static_cast<std::size_t>(steps * outputs));
      model.forward(1, steps, series.inputs().subspan(row * inputs, steps * inputs), forecasts, state, execution);
      for (Index i = 0; i < steps; ++i, ++row) {
        if (row >= first) sink(row, std::span<const float>(forecasts).subspan(i * outputs, outputs));
      }
    }
  }
}

RowErrors held_out_errors(const Model& model, const SeriesRows& series, const Execution& execution) {
  constexpr Index most_rows = 10'000;  // which say all there is to say
  const DataDescription& data = model.data();
  const auto targets = static_cast<Index>(data.targets.size());
  const Index first = std::max(series.training_rows() - 1, series.rows() - most_rows);
  RowErrors result;
  for (Index row = first; row < series.rows(); ++row) result.rows.push_back(row);
  result.errors.resize(result.rows.size() * static_cast<std::size_t>(data.output_size()),
                       std::numeric_limits<float>::quiet_NaN());
  Index end_of_file = 0;
  const auto begin = [&](Index row) {
    const auto next = std::ranges::upper_bound(series.starts(), row);
    end_of_file = next == series.starts().end() ? series.rows() : *next;
  };
  forecast_rows(model, series, first, execution, begin, [&](Index row, std::span<const float> forecasts) {
    float* const to = result.errors.data() + (row - first) * data.output_size();
    for (Index ahead = 1; ahead <= data.horizon && row + ahead < end_of_file; ++ahead) {
      for (Index c = 0; c < targets; ++c) {
        if (!series.is_asked_for(row + ahead, c)) continue;
        const Index i = (ahead - 1) * targets + c;
        to[i] = forecasts[i] - series.targets()[(row + ahead) * targets + c];
      }
    }
  });
  return result;
}

}  // namespace penstock::training
