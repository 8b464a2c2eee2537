#include <cstring>
#include <optional>

#include "base/check.h"
#include "nn/model_impl.h"
#include "ops/embedding.h"
#include "penstock/stream.h"

namespace penstock {

struct Session::Impl {
  Impl(const Model::Impl& model, const Execution& execution)
      : data(model.data), weights(model.weights_on(execution.device)), queue(weights->queue()) {
    Execution step = execution;
    step.threads = 1;
    step.algorithm = Algorithm::automatic;
    step.exact = !execution.device.is_cuda();
    ops::Target target = model_target(1, 1, step);
    target.step = true;
    const std::size_t width = data.vocabulary > 0 ? 1 : static_cast<std::size_t>(data.input_size());
    allocate(width * sizeof(float), static_cast<std::size_t>(data.output_size()) * sizeof(float),
             static_cast<std::size_t>(model.state_size) * sizeof(float));
    workspace.emplace(model.programs.program(model.spec, model.data, target), weights->shared_queue());
    workspace->bind(weights);
    workspace->bind(data.vocabulary > 0 ? graph::Home::tokens : graph::Home::features, input.data());
    workspace->bind(graph::Home::outputs, output.data());
    workspace->bind(graph::Home::state_in, state.data());
    workspace->bind(graph::Home::state_out, state.data());
    call.stream = queue.stream();
    workspace->refresh(call);
    if (execution.device.is_cuda()) record();
  }

  void allocate(std::size_t input_bytes, std::size_t output_bytes, std::size_t state_bytes) {
    staged_input.emplace(queue, input_bytes);
    staged_output.emplace(queue, output_bytes);
    input = ops::Buffer(queue, input_bytes);
    output = ops::Buffer(queue, output_bytes);
    state = ops::Buffer(queue, state_bytes);
    state.zero();
  }

  void record() {
    recording.emplace(queue, [this] {
      input.start_upload(staged_input->data(), input.bytes());
      workspace->run(call);
      output.start_download(staged_output->data(), output.bytes());
    });
  }

  /// What was pushed last is where a step of this device reads it.
  void* pushed() const { return recording ? staged_input->data() : input.data(); }

  std::span<const float> step() {
    const auto count = output.bytes() / sizeof(float);
    if (!recording) {
      workspace->run(call);
      return {static_cast<const float*>(output.data()), count};
    }
    recording->run();
    queue.synchronize();
    return {reinterpret_cast<const float*>(staged_output->data()), count};
  }

  DataDescription data;
  ops::Call call{.threads = 1};
  std::shared_ptr<graph::Weights> weights;
  ops::Queue& queue;
  std::optional<ops::StagingBuffer> staged_input, staged_output;  // of a GPU
  ops::Buffer input, output, state;  // each always at one address, so that a step looks nothing up
  std::optional<graph::Workspace> workspace;
  std::optional<ops::Recording> recording;
};

Session::Session(const Model& model, const Execution& execution)
    : impl_(std::make_unique<Impl>(model.impl(), execution)) {}
Session::Session(const Model& model, Precision precision) : Session(model, Execution{.precision = precision}) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

std::span<const float> Session::push(std::int32_t token) {
  require(impl_->data.vocabulary > 0, "this model reads features, not tokens");
  ops::check_tokens({}, &token, impl_->data.vocabulary);
  std::memcpy(impl_->pushed(), &token, sizeof token);
  return impl_->step();
}

std::span<const float> Session::push(std::span<const float> features) {
  require(impl_->data.vocabulary == 0, "this model reads tokens, not features");
  require(static_cast<Index>(features.size()) == impl_->data.input_size(), "features must hold {} values, not {}",
          impl_->data.input_size(), features.size());
  std::memcpy(impl_->pushed(), features.data(), features.size_bytes());
  return impl_->step();
}

void Session::reset() { impl_->state.zero(); }

}  // namespace penstock
