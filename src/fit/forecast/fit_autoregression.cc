#include <algorithm>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/counted.h"
#include "forecast/linear_fits.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

/// A parameter of a model's linear forecast; empty if the model has no such parameter.
std::span<float> parameter(Model::Impl& model, std::string_view name) {
  const nn::ParameterEntry* const entry = model.parameters->layout().find(name);
  return entry == nullptr ? std::span<float>() : model.parameters->value(*entry);
}

/// Makes each channel of the forecast read its target's input, normalised as the target.
void read_targets(Model::Impl& model) {
  const ops::Changes changes = nn::changes_of(model.data);
  const std::span<float> weight = parameter(model, "autoregression.spread.weight");
  const std::span<float> bias = parameter(model, "autoregression.spread.bias");
  for (const ops::Changes::Shared& column : changes.columns) {
    for (Index channel = column.target; channel < model.data.output_size(); channel += changes.targets) {
      weight[channel * model.data.input_size() + column.input] = static_cast<float>(column.factor);
      bias[channel] = static_cast<float>(column.offset);
    }
  }
}

/// A channel reads its target less the effects of the row. The last value, which the model adds anyway, is with them:
/// those of the row that is forecast are added, and those of the row that was read are taken away.
void set_effects(Model::Impl& model, const Autoregression& linear) {
  const auto targets = static_cast<Index>(model.data.targets.size()), inputs = model.data.input_size();
  const std::span<float> spread = parameter(model, "autoregression.spread.weight");
  const std::span<float> known = parameter(model, "autoregression.known.weight");
  std::ranges::fill(known, 0.0f);
  for (Index later = 0; later < inputs; ++later) {
    const Column& column = model.data.inputs[later];
    if (column.ahead == 0) continue;
    const auto now = static_cast<Index>(model.data.now_of(column));
    for (Index target = 0; target < targets; ++target) {
      const float effect = linear.effects.empty() ? 0.0f : linear.effects[now * targets + target];
      const Index channel = (column.ahead - 1) * targets + target;
      known[channel * inputs + later] = effect;
      known[channel * inputs + now] = -effect;
      spread[channel * inputs + now] = -effect;
    }
  }
}

void set_linear(Model& owner, const Autoregression& linear) {
  Model::Impl& model = owner.impl();
  model.part_from_sessions();
  std::ranges::copy(linear.weights, parameter(model, "autoregression.weight").begin());
  std::ranges::copy(linear.bias, parameter(model, "autoregression.bias").begin());
  read_targets(model);
  if (model.spec.branch_fields().known_effects) set_effects(model, linear);
  model.parameters->changed();
}

}  // namespace

const Autoregression* linear_forecast(const Dataset& data) {
  const training::LinearFits* const fits = training::linear_fits(data);
  return fits == nullptr ? nullptr : &fits->training;
}

void take_autoregression(ModelSpec& spec, const Dataset& data) {
  const Autoregression* const linear = spec.from_last ? linear_forecast(data) : nullptr;
  const bool known_effects = linear != nullptr && linear->lags > 0 && data.description().reads_ahead();
  spec.branch = fixed_branch({.lags = linear == nullptr ? 0 : linear->lags, .known_effects = known_effects});
}

void fit_autoregression(Model& model, const Dataset& data) {
  const FixedBranchFields fields = model.spec().branch_fields();
  if (fields.lags == 0) return;
  const Autoregression* const linear = linear_forecast(data);
  if (linear == nullptr || linear->lags != fields.lags) {
    fail(ErrorCode::incompatible, "the model's linear forecast has {}, that of the data {}",
         counted(fields.lags, "lag"), linear == nullptr ? 0 : linear->lags);
  }
  if (!linear->effects.empty() && !fields.known_effects) {
    fail(ErrorCode::incompatible,
         "the model's linear forecast has no effects of what is known in advance, that of "
         "the data has: set FixedBranchFields::known_effects");
  }
  set_linear(model, *linear);
}

void refit_autoregression(Model& model, const Dataset& data) {
  const Index lags = model.spec().branch_fields().lags;
  if (lags == 0) return;
  const training::LinearFits* const fits = training::linear_fits(data);
  if (fits != nullptr && fits->all.lags == lags) set_linear(model, fits->all);
}

}  // namespace penstock
