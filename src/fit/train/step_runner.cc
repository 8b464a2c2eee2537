#include "train/step_runner.h"

#include <algorithm>
#include <cstring>

#include "data/batch.h"

namespace penstock::training {

namespace {

// Steps that a GPU may be ahead of what the host knows: enough that it never waits for the host.
constexpr std::size_t steps_ahead = 4;

}  // namespace

void StepRunner::for_each_slot(const auto& visit) {
  for (OptimizerState::Slot& slot : optimizer_.slots) {
    const bool is_average = slot.name == average_name;
    visit(is_average ? averages_ : &slot == optimizer_.slots.data() ? first_ : second_, slot.values);
  }
}

StepRunner::StepRunner(Model::Impl& model, const nn::TrainingShape& training, const Execution& execution,
                       OptimizerState& optimizer, const StepState& state, std::vector<float> carried,
                       Index carried_rows)
    : model_(model),
      training_(training),
      execution_(execution),
      optimizer_(optimizer),
      weights_(model.weights_on(execution.device)),
      queue_(weights_->queue()),
      batch_(queue_),
      carried_(std::move(carried)),
      carried_rows_(carried_rows) {
  const std::size_t store = weights_->values().bytes();
  gradients_ = ops::Buffer(queue_, store);
  gradients_.zero();
  for_each_slot([&](ops::Buffer& buffer, std::vector<float>& values) {
    buffer = ops::Buffer(queue_, store);
    buffer.upload(values.data(), store);
  });
  status_ = ops::Buffer(queue_, static_cast<std::size_t>(ops::StatusLayout::bytes(model.spec.blocks)));
  status_.zero();
  status_.upload(&state, sizeof state);
  if (carried_rows_ > 0) {
    state_in_ = ops::Buffer(queue_, carried_.size() * sizeof(float));
    state_out_ = ops::Buffer(queue_, carried_.size() * sizeof(float));
    state_in_.upload(carried_.data(), carried_.size() * sizeof(float));
  }
  slots_.resize(queue_.device().is_cuda() ? steps_ahead : 1);
  for (Slot& slot : slots_) {
    slot.status.emplace(queue_, status_.bytes());
    slot.time_fraction.emplace(queue_, sizeof(double));
    slot.copied.emplace(queue_);
    slot.done.emplace(queue_);
  }
}

StepRunner::~StepRunner() {
  try {
    queue_.synchronize();  // nothing that is under way may outlive its memory
  } catch (const Error&) {
    // The callers that waited for a result have already got its error.
  }
}

StepRunner::Shape& StepRunner::shape_for(const ops::Target& target) {
  return shapes_.get(target, [&] {
    Shape made;
    made.workspace = std::make_unique<graph::Workspace>(
        nn::training_program(model_.spec, model_.data, training_, target), weights_->shared_queue());
    made.workspace->bind(weights_);
    return made;
  });
}

void StepRunner::start_state(const Example& example, bool carry) {
  const auto bytes = static_cast<std::size_t>(example.rows * model_.state_size) * sizeof(float);
  const bool continues = carry && example.continues && carried_rows_ == example.rows;
  if (state_in_.bytes() != bytes) {
    state_in_ = ops::Buffer(queue_, bytes);
    state_out_ = ops::Buffer(queue_, bytes);
    forget_recordings();
  }
  if (!continues) state_in_.zero();
  carried_rows_ = example.rows;
}

void StepRunner::upload(const Example& example, double time_fraction, Slot& slot) {
  if (batch_.reserve(example)) forget_recordings();
  slot.copied->wait();
  std::memcpy(slot.time_fraction->data(), &time_fraction, sizeof time_fraction);
  status_.start_upload(slot.time_fraction->data(), sizeof time_fraction,
                       static_cast<std::size_t>(ops::StatusLayout::time_fraction));
  batch_.start_upload(example, slot.inputs, *slot.copied);
}

void StepRunner::bind(graph::Workspace& workspace) const {
  batch_.bind(workspace);
  workspace.bind(graph::Home::gradients, gradients_.data());
  workspace.bind(graph::Home::first_moments, first_.data());
  workspace.bind(graph::Home::second_moments, second_.data());
  workspace.bind(graph::Home::averages, averages_.data());
  workspace.bind(graph::Home::status, status_.data());
  workspace.bind(graph::Home::state_in, state_in_.data());
  workspace.bind(graph::Home::state_out, state_out_.data());
}

void StepRunner::submit(const Example& example, bool carry, double time_fraction, StepResult expected) {
  Slot& slot = slots_[next_];
  require(!slot.busy, "results of earlier steps must be taken before more are submitted");
  ops::Target target = target_of(example, execution_);
  target.flags.set(CallFlag::training);
  start_state(example, carry);
  upload(example, time_fraction, slot);
  Shape& shape = shape_for(target);
  graph::Workspace& workspace = *shape.workspace;
  ops::Call call = batch_.call(example, execution_);
  call.device_seed = &static_cast<const StepState*>(status_.data())->dropout_seed;
  bind(workspace);
  workspace.observe(observer_);
  workspace.refresh(call);
  if (workspace.moved()) shape.recording.reset();
  if (observer_ != nullptr) {
    workspace.run(call);
  } else {
    if (!shape.recording) shape.recording.emplace(queue_, [&workspace, call] { workspace.run(call); });
    shape.recording->run();
  }
  workspace.updated();
  status_.start_download(slot.status->data(), status_.bytes());
  slot.done->set();
  slot.expected = std::move(expected);
  slot.busy = true;
  under_way_.push_back(next_);
  next_ = (next_ + 1) % slots_.size();
}

std::optional<StepResult> StepRunner::take(bool wait) {
  if (under_way_.empty() || (!wait && under_way_.size() < slots_.size())) return std::nullopt;
  Slot& slot = slots_[under_way_.front()];
  under_way_.pop_front();
  slot.done->wait();
  slot.busy = false;
  StepResult result = std::move(slot.expected);
  std::memcpy(&result.state, slot.status->data(), sizeof result.state);
  result.saturation.resize(static_cast<std::size_t>(2 * model_.spec.blocks));
  std::memcpy(result.saturation.data(), slot.status->data() + ops::StatusLayout::watched,
              result.saturation.size() * sizeof(std::int64_t));
  return result;
}

void StepRunner::synchronize() {
  queue_.synchronize();
  const std::size_t store = weights_->values().bytes();
  for_each_slot([&](ops::Buffer& buffer, std::vector<float>& values) { buffer.download(values.data(), store); });
  carried_.resize(static_cast<std::size_t>(carried_rows_ * model_.state_size));
  if (!carried_.empty()) state_in_.download(carried_.data(), carried_.size() * sizeof(float));
  model_.take_weights_from(execution_.device);
}

}  // namespace penstock::training
