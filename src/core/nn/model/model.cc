#include "penstock/model.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "nn/closed_form/linear_branch.h"
#include "nn/enough_memory.h"
#include "nn/model/initialise.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/model_spec.h"
#include "nn/model/quantize.h"

namespace penstock {

namespace {

const ModelSpec& checked(const ModelSpec& spec, const DataDescription& data) {
  nn::check_spec(spec, data);
  nn::check_int8(spec, data);
  return spec;
}

/// The tensors of a forward call as its device finds them: where they are on the CPU, in copies elsewhere.
class CallMemory {
 public:
  CallMemory(ops::Queue& queue, std::span<const std::byte> input, std::span<float> outputs, std::span<float> state)
      : outputs_(outputs), state_(state), on_cpu_(!queue.device().is_cuda()) {
    if (on_cpu_) {
      places_ = {const_cast<std::byte*>(input.data()), outputs.data(), state.data(), state.data()};
      return;
    }
    const std::size_t sizes[] = {input.size(), outputs.size_bytes(), state.size_bytes(), state.size_bytes()};
    for (std::size_t i = 0; i < places_.size(); ++i) {
      buffers_[i] = ops::Buffer(queue, sizes[i]);
      places_[i] = buffers_[i].data();
    }
    buffers_[0].upload(input.data(), input.size());
    buffers_[2].upload(state.data(), state.size_bytes());
  }

  void bind(graph::Workspace& workspace, graph::Home input) const {
    workspace.bind(input, places_[0]);
    workspace.bind(graph::Home::outputs, places_[1]);
    workspace.bind(graph::Home::state_in, places_[2]);
    workspace.bind(graph::Home::state_out, places_[3]);
  }
  void read_back() const {
    if (on_cpu_) return;
    buffers_[1].download(outputs_.data(), outputs_.size_bytes());
    buffers_[3].download(state_.data(), state_.size_bytes());
  }

 private:
  std::span<float> outputs_, state_;
  bool on_cpu_;
  std::array<ops::Buffer, 4> buffers_;  // input, outputs, state_in, state_out
  std::array<void*, 4> places_ = {};
};

void run_forward(const Model::Impl& impl, Index rows, Index steps, graph::Home input, std::span<const std::byte> values,
                 std::span<float> outputs, ModelState& state, const Execution& execution) {
  const std::shared_ptr<graph::Weights> weights = impl.weights_on(execution.device);
  const ops::Target target = model_target(rows, steps, execution);
  const nn::ModelPrograms::Lease workspace = impl.programs.take(impl.spec, impl.data, target, weights->shared_queue());
  const CallMemory memory(weights->queue(), values, outputs, state.values);
  const ops::Call call{
      .batch = {.rows = rows, .steps = steps}, .threads = execution.threads, .stream = weights->queue().stream()};
  workspace->bind(weights);
  memory.bind(*workspace, input);
  workspace->refresh(call);
  workspace->run(call);
  memory.read_back();
}

void forward(const Model::Impl& impl, Index rows, Index steps, graph::Home input, std::span<const std::byte> values,
             std::span<float> outputs, ModelState& state, const Execution& execution) {
  const auto bytes = [&] {
    return impl.programs.program(impl.spec, impl.data, model_target(rows, steps, execution))->workspace_bytes();
  };
  const auto need = [&] {
    return nn::MemoryNeed{fmt::format("a forward pass of {} rows and {} steps", rows, steps), bytes,
                          "fewer rows or steps need less"};
  };
  nn::with_enough_memory(execution.device, need,
                         [&] { run_forward(impl, rows, steps, input, values, outputs, state, execution); });
}

void check_call(const Model::Impl& impl, Index rows, Index steps, std::size_t outputs, const ModelState& state) {
  require_argument(rows >= 1, "rows", rows, "at least 1");
  require_argument(steps >= 0, "steps", steps, "at least 0");
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

std::shared_ptr<graph::Weights> Model::Impl::weights_on(Device device) const {
  const std::shared_ptr<graph::Weights>& host = parameters->weights();
  if (!device.is_cuda()) return host;
  const std::lock_guard lock(guard_);
  auto found = std::ranges::find(copies_, device, &Copy::device);
  if (found == copies_.end()) {
    auto weights = std::make_shared<graph::Weights>(std::make_shared<ops::Queue>(device), host->values().bytes());
    copies_.push_back({device, std::move(weights), 0});
    found = copies_.end() - 1;
  }
  if (found->of_version != host->version()) {
    found->weights->values().upload(host->values().data(), host->values().bytes());
    found->weights->changed();
    found->of_version = host->version();
  }
  return found->weights;
}

void Model::Impl::detach_sessions() {
  const std::lock_guard lock(guard_);
  parameters->part_from_readers();
  copies_.clear();
}

void Model::Impl::take_weights_from(Device device) {
  const std::lock_guard lock(guard_);
  const auto found = std::ranges::find(copies_, device, &Copy::device);
  if (found == copies_.end()) return;
  const std::shared_ptr<graph::Weights>& host = parameters->weights();
  found->weights->values().download(host->values().data(), host->values().bytes());
  host->changed();
  found->of_version = host->version();
}

ops::Target model_target(Index rows, Index steps, const Execution& execution) {
  ops::Target target{.device = execution.device, .rows = rows, .steps = steps, .execution = execution};
  if (!execution.device.is_cuda()) return target;
  switch (execution.precision) {
    case Precision::full:
    case Precision::tf32:
      target.dtype = DType::f32;
      break;
    case Precision::bf16:
      target.dtype = DType::bf16;
      break;
    case Precision::f16:
      target.dtype = DType::f16;
      break;
    case Precision::bf16_weights:
      fail(ErrorCode::unsupported, "precision bf16-weights is of the CPU; {} has f32, tf32, bf16 and f16",
           to_string(execution.device));
  }
  return target;
}

Model::Model(const ModelSpec& spec, const DataDescription& data, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, data)) {
  require_about(spec.int8.empty(), "int8", " must be empty for a new model: a trained one is quantised");
  nn::initialise(impl_->parameters->layout(), impl_->parameters->values().data(), seed);
  impl_->parameters->changed();
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model::Impl& Model::refuse_moved_from() {
  fail(ErrorCode::invalid_argument, "the model must not have been moved from");
}

const ModelSpec& Model::spec() const { return impl().spec; }
const DataDescription& Model::data() const { return impl().data; }
std::optional<Model> Model::of_series(const DataDescription& series) const {
  const Autoregression& own = series.series.own;
  if (own.lags == 0) return std::nullopt;
  // Layers of the least size whose weights are all 0 leave the linear forecast alone.
  const ModelSpec spec{.width = 1,
                       .blocks = 1,
                       .from_last = true,
                       .branch = closed_form_branch({.lags = own.lags, .known_effects = series.reads_ahead()})};
  DataDescription data = series;
  data.series.own = {};  // this model's only forecast
  Model model(std::make_unique<Impl>(spec, data));
  nn::set_linear(*model.impl_, own);
  return model;
}
void Model::allow_negative() {
  for (Column& target : impl().data.targets) target.non_negative = false;
}
Index Model::parameter_count() const { return impl().parameters->layout().count(); }

ModelState Model::state(Index rows) const {
  require_argument(rows >= 1, "rows", rows, "at least 1");
  return {rows, std::vector<float>(static_cast<std::size_t>(rows * impl().state_size), 0.0f)};
}

ModelMemory Model::memory(Index rows, Index steps, const Execution& execution) const {
  require_argument(rows >= 1, "rows", rows, "at least 1");
  require_argument(steps >= 1, "steps", steps, "at least 1");
  const std::size_t weights = impl().parameters->weights()->values().bytes();
  ops::Target target = model_target(rows, steps, execution);
  const auto forward = impl().programs.program(impl().spec, impl().data, target);
  ModelMemory result{.weights = weights,
                     .state = static_cast<std::size_t>(rows * impl().state_size) * sizeof(float),
                     .forward = forward->workspace_bytes(),
                     .forward_peak = forward->peak_bytes()};
  if (!impl().spec.int8.empty()) return result;
  target.flags.set(CallFlag::training);
  const bool regression = impl().data.task == Task::forecast;
  nn::TrainingShape shape;
  shape.loss = regression ? LossKind::mse : LossKind::cross_entropy;
  ModelSpec trained = impl().spec;  // the members of an ensemble are trained one by one
  trained.members = 1;
  const auto training = nn::training_program(trained, impl().data, shape, target);
  result.training = training->workspace_bytes();
  result.training_peak = training->peak_bytes();
  result.optimizer = 3 * weights / static_cast<std::size_t>(impl().spec.members);
  return result;
}

void Model::forward(Index rows, Index steps, std::span<const std::int32_t> tokens, std::span<float> outputs,
                    ModelState& state, const Execution& execution) const {
  require(impl().data.vocabulary > 0, "this model reads features, not tokens");
  check_call(impl(), rows, steps, outputs.size(), state);
  require(static_cast<Index>(tokens.size()) == rows * steps, "tokens must hold {} values (rows {}, steps {}), not {}",
          rows * steps, rows, steps, tokens.size());
  if (steps == 0) return;
  ops::check_tokens({.rows = rows, .steps = steps}, tokens.data(), impl().data.vocabulary);
  penstock::forward(impl(), rows, steps, graph::Home::tokens, std::as_bytes(tokens), outputs, state, execution);
}

void Model::forward(Index rows, Index steps, std::span<const float> features, std::span<float> outputs,
                    ModelState& state, const Execution& execution) const {
  require(impl().data.vocabulary == 0, "this model reads tokens, not features");
  check_call(impl(), rows, steps, outputs.size(), state);
  const Index inputs = impl().inputs();
  require(static_cast<Index>(features.size()) == rows * steps * inputs,
          "features must hold {} values (rows {}, steps {}, size {}), not {}", rows * steps * inputs, rows, steps,
          inputs, features.size());
  if (steps == 0) return;
  penstock::forward(impl(), rows, steps, graph::Home::features, std::as_bytes(features), outputs, state, execution);
}

}  // namespace penstock
