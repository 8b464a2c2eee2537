// Initial weights of the recurrent layers of a model.

#include "base/check.h"
#include "nn/layer/initial_weights.h"
#include "nn/model/model_impl.h"

namespace penstock {

void initialise(Model& model, const Initialisation& options, std::uint64_t seed) {
  const ModelSpec& spec = model.spec();
  require(spec.members == 1, "model must be a single one, not an ensemble of {}", spec.members);
  nn::check_initialisation(options, spec.cell);
  if (options == Initialisation{}) return;
  model.impl().detach_sessions();
  nn::Parameters<float>& parameters = *model.impl().parameters;
  const Index hidden = spec.hidden_size > 0 ? spec.hidden_size : spec.width;
  Random random(seed);
  for (Index block = 0; block < spec.blocks; ++block) {
    const auto value = [&](const char* name) {
      const auto* const entry = parameters.layout().find(fmt::format("blocks.{}.recurrent.{}", block, name));
      return entry == nullptr ? std::span<float>() : parameters.value(*entry);
    };
    nn::initialise_layer<float>(
        options,
        {spec.cell, hidden, spec.heads, value("weight_ih"), value("weight_hh"), value("bias_ih"), value("bias_hh")},
        random);
  }
  parameters.changed();
}

}  // namespace penstock
