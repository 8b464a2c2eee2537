#include <algorithm>

#include "base/check.h"
#include "nn/model_graph.h"
#include "nn/model_impl.h"
#include "penstock/train.h"
#include "train/series_rows.h"

namespace penstock {

namespace {

/// What of a target a channel of the forecast reads: its input, normalised as the target.
void set_linear(Model& model, const Autoregression& linear) {
  Model::Impl& impl = model.impl();
  const DataDescription& data = impl.data;
  const ops::Changes changes = nn::changes_of(data);
  const Index width = data.output_size(), inputs = data.input_size();
  for (const nn::ParameterEntry& entry : impl.parameters->layout().entries()) {
    const std::span<float> values = impl.parameters->value(entry);
    if (entry.name == "autoregression.weight") std::ranges::copy(linear.weights, values.begin());
    if (entry.name == "autoregression.bias") std::ranges::copy(linear.bias, values.begin());
    for (const ops::Changes::Shared& column : changes.columns) {
      for (Index channel = column.target; channel < width; channel += changes.targets) {
        if (entry.name == "autoregression.spread.weight") {
          values[channel * inputs + column.input] = static_cast<float>(column.factor);
        }
        if (entry.name == "autoregression.spread.bias") values[channel] = static_cast<float>(column.offset);
      }
    }
  }
  impl.parameters->changed();
}

}  // namespace

void fit_autoregression(Model& model, const Dataset& data) {
  const Autoregression* const linear = data.autoregression();
  const Index lags = model.spec().lags;
  if (lags == 0) return;
  if (linear == nullptr || linear->lags != lags) {
    fail(ErrorCode::incompatible, "the model's linear forecast has {} lags, that of the data {}", lags,
         linear == nullptr ? 0 : linear->lags);
  }
  set_linear(model, *linear);
}

void refit_autoregression(Model& model, const Dataset& data) {
  const training::SeriesRows* const series = training::SeriesRows::of(data);
  const Autoregression* const linear = series == nullptr ? nullptr : series->refitted();
  if (linear != nullptr && linear->lags == model.spec().lags && linear->lags > 0) set_linear(model, *linear);
}

}  // namespace penstock
