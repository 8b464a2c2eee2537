#include "nn/closed_form/linear_branch.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/check.h"
#include "nn/model/graph_builder.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/model_spec.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

namespace {

/// A parameter of a model's linear forecast; empty if the model has no such parameter.
std::span<float> parameter(Model::Impl& model, std::string_view name) {
  const ParameterEntry* const entry = model.parameters->layout().find(name);
  return entry == nullptr ? std::span<float>() : model.parameters->value(*entry);
}

/// Makes each channel of the forecast read its target's input, normalised as the target.
void read_targets(Model::Impl& model) {
  const ops::Changes changes = changes_of(model.data);
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

}  // namespace

void LinearBranch::check(const ModelSpec& spec, const DataDescription& data) const {
  const auto& [lags, known_effects, filters, dilations] = fields();
  check_range("lags", lags, 0, most_lags);
  require(lags == 0 || spec.from_last, "lags must be 0 for a model that does not forecast from the last value");
  require(!known_effects || (lags > 0 && data.reads_ahead()),
          "known_effects must be false for a model without lags, or of data that read no later rows");
  require(filters == 0 && dilations == 0, "filters and dilations must be 0 for a model with lags, not {} and {}",
          filters, dilations);
}

double LinearBranch::parameter_count(const DataDescription& data) const {
  const auto lags = static_cast<double>(fields().lags), inputs = static_cast<double>(data.input_size());
  const double known = fields().known_effects ? inputs + 1.0 : 0.0;
  return static_cast<double>(data.output_size()) * (lags + inputs + 2.0 + known);
}

void LinearBranch::add_to(GraphBuilder& builder, const DataDescription& data, ValueId outputs) const {
  // A channel for every value of a forecast reads its target's column, and a convolution of each channel by itself is
  // then a regression on lags. Levels would lose their changes in a type shorter than that of parameters.
  const std::string name = "autoregression";
  const ValueId features = builder.features(data.input_size());
  const ValueId spread = builder.fixed_linear(name + ".spread", features, data.output_size());
  builder.add(builder.fixed_convolution(name, spread, fields().lags), outputs);
  if (fields().known_effects) builder.add(builder.fixed_linear(name + ".known", features, data.output_size()), outputs);
}

void set_linear(Model::Impl& model, const Autoregression& linear) {
  model.detach_sessions();
  std::ranges::copy(linear.weights, parameter(model, "autoregression.weight").begin());
  std::ranges::copy(linear.bias, parameter(model, "autoregression.bias").begin());
  read_targets(model);
  if (model.spec.branch_fields().known_effects) set_effects(model, linear);
  model.parameters->changed();
}

}  // namespace penstock::nn
