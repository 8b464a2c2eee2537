#include <algorithm>
#include <vector>

#include "base/check.h"
#include "nn/model_impl.h"
#include "penstock/stream.h"

namespace penstock {

/// Layers of its own, because layers keep scratch memory; weights shared with the model.
struct Session::Impl {
  Impl(const Model::Impl& model, Precision precision)
      : parameters(model.parameters),
        network(model.spec, model.data),
        vocabulary(model.data.vocabulary),
        state(static_cast<std::size_t>(network.state_size()), 0.0f),
        outputs(static_cast<std::size_t>(network.outputs()), 0.0f) {
    network.bind(parameters->values().data(), nullptr);
    network.prepare_step(precision);
  }

  std::span<const float> step(const nn::Input<float>& input) {
    network.step(input, outputs.data(), state.data());
    return outputs;
  }

  std::shared_ptr<const nn::Parameters<float>> parameters;
  nn::Network<float> network;
  Index vocabulary;
  std::vector<float> state, outputs;
};

Session::Session(const Model& model, Precision precision) : impl_(std::make_unique<Impl>(model.impl(), precision)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

std::span<const float> Session::push(std::int32_t token) {
  require(impl_->vocabulary > 0, "this model reads features, not tokens");
  return impl_->step({.tokens = &token});
}

std::span<const float> Session::push(std::span<const float> features) {
  require(impl_->vocabulary == 0, "this model reads tokens, not features");
  require(static_cast<Index>(features.size()) == impl_->network.inputs(), "features must hold {} values, not {}",
          impl_->network.inputs(), features.size());
  return impl_->step({.features = features.data()});
}

void Session::reset() { std::ranges::fill(impl_->state, 0.0f); }

}  // namespace penstock
