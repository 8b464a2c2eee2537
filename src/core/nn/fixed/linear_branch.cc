#include "nn/fixed/linear_branch.h"

#include "base/check.h"
#include "nn/model/graph_builder.h"
#include "nn/model/model_spec.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

void LinearBranch::check(const ModelSpec& spec, const DataDescription& data) const {
  constexpr Index largest_lags = 65536;
  const auto& [lags, known_effects, filters, dilations] = fields();
  check_range("lags", lags, 0, largest_lags);
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

}  // namespace penstock::nn
