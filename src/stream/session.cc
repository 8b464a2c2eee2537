#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "nn/model_impl.h"
#include "penstock/stream.h"

namespace penstock {

struct Session::Impl {
  Impl(const Model::Impl& model, Precision precision)
      : parameters(model.parameters),
        vocabulary(model.data.vocabulary),
        inputs(model.inputs()),
        state(static_cast<std::size_t>(model.state_size), 0.0f),
        outputs(static_cast<std::size_t>(model.outputs()), 0.0f) {
    const ops::Target target{.step = true, .execution = {.threads = 1, .exact = true, .precision = precision}};
    const std::shared_ptr<graph::Weights>& weights = parameters->weights();
    workspace.emplace(model.programs.program(model.spec, model.data, target), weights->shared_queue());
    workspace->bind(weights);
    features.resize(static_cast<std::size_t>(inputs));
    workspace->bind(graph::Home::tokens, &token);
    workspace->bind(graph::Home::features, features.data());
    workspace->bind(graph::Home::outputs, outputs.data());
    workspace->bind(graph::Home::state_in, state.data());
    workspace->bind(graph::Home::state_out, state.data());
    workspace->refresh(call);
  }

  std::span<const float> step() {
    workspace->run(call);
    return outputs;
  }

  const ops::Call call{.threads = 1};
  std::shared_ptr<const nn::Parameters<float>> parameters;
  Index vocabulary, inputs;
  std::vector<float> state, outputs;
  std::int32_t token = 0;  // what was pushed last lies at one address, so that a step looks nothing up
  std::vector<float> features;
  std::optional<graph::Workspace> workspace;
};

Session::Session(const Model& model, Precision precision) : impl_(std::make_unique<Impl>(model.impl(), precision)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

std::span<const float> Session::push(std::int32_t token) {
  require(impl_->vocabulary > 0, "this model reads features, not tokens");
  impl_->token = token;
  return impl_->step();
}

std::span<const float> Session::push(std::span<const float> features) {
  require(impl_->vocabulary == 0, "this model reads tokens, not features");
  require(static_cast<Index>(features.size()) == impl_->inputs, "features must hold {} values, not {}", impl_->inputs,
          features.size());
  std::ranges::copy(features, impl_->features.begin());
  return impl_->step();
}

void Session::reset() { std::ranges::fill(impl_->state, 0.0f); }

}  // namespace penstock
