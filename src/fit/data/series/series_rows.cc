#include "data/series/series_rows.h"

#include <algorithm>
#include <limits>

#include "nn/description/with_scaling.h"
#include "penstock/stop.h"

namespace penstock::training {

const LinearFits& SeriesRows::linear_fits(const std::function<std::shared_ptr<const LinearFits>()>& fit) const {
  const std::lock_guard lock(guard_);
  if (!fits_) fits_ = fit();
  return *fits_;
}

bool has_linear_forecast(const Dataset& data) {
  return data.series_rows() != nullptr && !data.series_rows()->linear_plans().empty();
}

Index SeriesRows::held_out() const {
  Index sum = 0;
  for (const Segment& segment : segments()) sum += segment.held_out();
  return sum;
}

std::vector<double> SeriesRows::known_values(Index row, Index targets) const {
  std::vector<double> values;
  for (Index target = 0; target < targets; ++target) {
    values.push_back(is_known(row, target) ? value(row, target) : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

const Segment& SeriesRows::segment_of(Index row) const { return training::segment_of(segments(), row); }

const Segment& segment_of(const std::vector<Segment>& segments, Index row) {
  return *(std::ranges::upper_bound(segments, row, {}, &Segment::first) - 1);
}

std::vector<Column> columns_of(const DataDescription& data, const Segment& segment,
                               std::vector<Column> DataDescription::*columns, std::vector<Scaling> Group::*scalings) {
  if (segment.group < 0) return data.*columns;
  return with_scalings(data.*columns, data.series.groups[segment.group].*scalings);
}

DataDescription SegmentDescriptions::of(const Segment& segment) const {
  return segment.group < 0 ? data_ : groups_.of(data_.series.groups[segment.group]);
}

void forecast_segment(const Model& model, const SeriesRows& series, const Segment& segment, Index first,
                      const Execution& execution, const ForecastSink& sink) {
  constexpr Index most_steps = 1024;  // of one call: bounds the memory, and fills the matrix products
  const Index inputs = model.data().input_size(), outputs = model.data().output_size();
  const bool has_own = segment.group >= 0 && model.data().series.groups[segment.group].own.lags > 0;
  const auto own = has_own ? model.of_series(SegmentDescriptions(model.data()).of(segment)) : std::nullopt;
  const Model& answers = own ? *own : model;
  std::vector<float> forecasts;
  ModelState state = answers.state(1);
  for (Index row = segment.first; row < segment.end;) {
    stop_if_asked();
    const Index steps = std::min(most_steps, segment.end - row);
    forecasts.resize(static_cast<std::size_t>(steps * outputs));
    answers.forward(1, steps, series.inputs().subspan(row * inputs, steps * inputs), forecasts, state, execution);
    for (Index i = 0; i < steps; ++i, ++row) {
      if (row >= first) sink(row, std::span<const float>(forecasts).subspan(i * outputs, outputs));
    }
  }
}

RowErrors held_out_errors(const Model& model, const SeriesRows& series, const Execution& execution) {
  constexpr double most_rows = 10'000.0;  // which say all there is to say
  const DataDescription& data = model.data();
  const auto targets = static_cast<Index>(data.targets.size());
  const double share = std::min(1.0, most_rows / static_cast<double>(std::max<Index>(series.held_out(), 1)));
  RowErrors result;
  for (const Segment& segment : series.segments()) {
    if (segment.held_out() == 0) continue;
    const auto rows = static_cast<Index>(share * static_cast<double>(segment.held_out())) + 1;
    forecast_segment(model, series, segment, segment.end - rows, execution,
                     [&](Index row, std::span<const float> forecasts) {
                       const std::size_t begin = result.errors.size();
                       result.rows.push_back(row);
                       result.errors.resize(begin + forecasts.size(), std::numeric_limits<float>::quiet_NaN());
                       for (Index ahead = 1; ahead <= data.series.horizon && row + ahead < segment.end; ++ahead) {
                         for (Index c = 0; c < targets; ++c) {
                           if (!series.is_known(row + ahead, c)) continue;
                           const Index i = (ahead - 1) * targets + c;
                           const float value = series.targets()[(row + ahead) * targets + c];
                           result.errors[begin + static_cast<std::size_t>(i)] = forecasts[i] - value;
                         }
                       }
                     });
  }
  return result;
}

}  // namespace penstock::training
