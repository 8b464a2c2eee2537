#include "penstock/model.h"

#include <algorithm>

#include "base/check.h"
#include "nn/initialise.h"
#include "nn/model_graph.h"
#include "nn/model_impl.h"
#include "nn/model_spec.h"

namespace penstock {

namespace {

const ModelSpec& checked(const ModelSpec& spec, const DataDescription& data) {
  nn::check_spec(spec, data);
  return spec;
}

void forward(const Model::Impl& impl, Index rows, Index steps, graph::Home input, const void* values,
             std::span<float> outputs, ModelState& state, const Execution& execution) {
  const std::shared_ptr<graph::Weights>& weights = impl.parameters->weights();
  const ops::Target target{.rows = rows, .steps = steps, .execution = execution};
  const auto workspace =
      impl.programs.take(impl.spec, impl.data, target, std::shared_ptr<ops::Queue>(weights, &weights->queue()));
  workspace->bind(weights);
  workspace->bind(input, const_cast<void*>(values));  // an op writes only what it says it writes
  workspace->bind(graph::Home::outputs, outputs.data());
  workspace->bind(graph::Home::state_in, state.values.data());
  workspace->bind(graph::Home::state_out, state.values.data());
  const ops::Call call{.batch = {.rows = rows, .steps = steps}, .threads = execution.threads};
  workspace->refresh(call);
  workspace->run(call);
}

void check_call(const Model::Impl& impl, Index rows, Index steps, std::size_t outputs, const ModelState& state) {
  require(rows >= 1, "rows must be at least 1, not {}", rows);
  require(steps >= 0, "steps must not be negative, not {}", steps);
  const Index expected = rows * steps * impl.outputs();
  require(static_cast<Index>(outputs) == expected, "outputs must hold {} values (rows {}, steps {}, size {}), not {}",
          expected, rows, steps, impl.outputs(), outputs);
  require(state.rows == rows, "state is of {} rows, the call of {}", state.rows, rows);
  const Index size = rows * impl.state_size;
  require(static_cast<Index>(state.values.size()) == size, "state must hold {} values, not {}", size,
          state.values.size());
}

}  // namespace

Model::Impl::Impl(const ModelSpec& spec_, const DataDescription& data_) : spec(checked(spec_, data_)), data(data_) {
  nn::GraphBuilder builder({});
  nn::add_model(builder, spec, data, graph::Home::outputs);
  parameters = std::make_shared<nn::Parameters<float>>(builder.layout());
  state_size = builder.state_size();
}

Model::Model(const ModelSpec& spec, const DataDescription& data, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, data)) {
  nn::initialise(impl_->parameters->layout(), impl_->parameters->values().data(), seed);
  impl_->parameters->changed();
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelSpec& Model::spec() const { return impl_->spec; }
const DataDescription& Model::data() const { return impl_->data; }
Index Model::parameter_count() const { return impl_->parameters->layout().count(); }

ModelState Model::state(Index rows) const {
  require(rows >= 1, "rows must be at least 1, not {}", rows);
  return {rows, std::vector<float>(static_cast<std::size_t>(rows * impl_->state_size), 0.0f)};
}

void Model::forward(Index rows, Index steps, std::span<const std::int32_t> tokens, std::span<float> outputs,
                    ModelState& state, const Execution& execution) const {
  require(impl_->data.vocabulary > 0, "this model reads features, not tokens");
  check_call(*impl_, rows, steps, outputs.size(), state);
  require(static_cast<Index>(tokens.size()) == rows * steps, "tokens must hold {} values (rows {}, steps {}), not {}",
          rows * steps, rows, steps, tokens.size());
  if (steps == 0) return;
  penstock::forward(*impl_, rows, steps, graph::Home::tokens, tokens.data(), outputs, state, execution);
}

void Model::forward(Index rows, Index steps, std::span<const float> features, std::span<float> outputs,
                    ModelState& state, const Execution& execution) const {
  require(impl_->data.vocabulary == 0, "this model reads tokens, not features");
  check_call(*impl_, rows, steps, outputs.size(), state);
  const Index inputs = impl_->inputs();
  require(static_cast<Index>(features.size()) == rows * steps * inputs,
          "features must hold {} values (rows {}, steps {}, size {}), not {}", rows * steps * inputs, rows, steps,
          inputs, features.size());
  if (steps == 0) return;
  penstock::forward(*impl_, rows, steps, graph::Home::features, features.data(), outputs, state, execution);
}

}  // namespace penstock
