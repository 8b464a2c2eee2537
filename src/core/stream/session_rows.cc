#include "stream/session_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/counter_random.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/numbered_rows.h"

namespace penstock::streaming {

namespace {

// Draws of a row between two times that the host reads them: enough that a GPU hardly ever waits for that.
constexpr Index kHistory = 64;
// Steps of one recording, so that putting them into the queue is never what takes long.
constexpr Index kRecordedSteps = 16;

ops::Target step_target(Index rows, const Execution& execution) {
  Execution step = execution;
  if (rows == 1) step.threads = 1;
  step.algorithm = Algorithm::automatic;
  step.exact = execution.exact || !execution.device.is_cuda();
  ops::Target target = model_target(rows, 1, step);
  target.flags.set(CallFlag::step, rows == 1);
  return target;
}

std::size_t floats(Index count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

void require_tokens(const DataDescription& data) {
  require(data.vocabulary > 0, "this model reads features, not tokens");
}

void require_features(const DataDescription& data, Index rows, std::size_t given) {
  require(data.vocabulary == 0, "this model reads tokens, not features");
  require(static_cast<Index>(given) == rows * data.input_size(), "features must hold {} values, not {}",
          rows * data.input_size(), given);
}

void require_near(std::span<const float> features) {
  constexpr auto furthest = static_cast<float>(Column::furthest);  // the largest float that is not further
  const auto near = [](float value) { return std::abs(value) <= furthest; };
  int any = 0;  // of a chunk of sound, vectors find it in a fraction of the time
  for (const float value : features) any |= near(value) ? 0 : 1;
  if (any == 0) return;
  const auto far = std::ranges::find_if_not(features, near);
  require_argument(far == features.end(), "features", far == features.end() ? 0.0f : *far, "numbers of at most {:g}",
                   Column::furthest);
}

void require_state(Index size, std::span<const float> state) {
  require(static_cast<Index>(state.size()) == size, "state must hold {} values, not {}", size, state.size());
  require(ops::all_finite(1, size, state.data()), "state must hold finite values");
}

SessionRows::SessionRows(const Model::Impl& model, Index rows, const Execution& execution)
    : SessionRows([&] {
        const ops::Target target = step_target(rows, execution);
        return Parts{.data = model.data,
                     .spec = model.spec,
                     .target = target,
                     .weights = model.weights_on(execution.device),
                     .program = model.programs.program(model.spec, model.data, target),
                     .state_size = rows * model.state_size};
      }()) {}

SessionRows::SessionRows(const SessionRows& other) : SessionRows(other.parts()) {
  restore(other.state());
  keys_ = other.keys_;
  counters_ = other.counters_;
}

SessionRows::SessionRows(Parts parts)
    : data_(std::move(parts.data)),
      spec_(std::move(parts.spec)),
      target_(parts.target),
      weights_(std::move(parts.weights)),
      program_(std::move(parts.program)),
      queue_(weights_->queue()),
      staged_input_(queue_, floats(rows() * (data_.vocabulary > 0 ? 1 : data_.input_size()))),
      staged_output_(queue_, floats(rows() * data_.output_size())),
      input_(queue_, staged_input_.bytes()),
      output_(queue_, staged_output_.bytes()),
      state_(queue_, floats(parts.state_size)) {
  state_.zero();
  if (!target_.execution.device.is_cuda()) input_.zero();  // rows that nobody fills, too, are computed
  output_.zero();                                          // what is drawn before the first step is any token
  workspace_.emplace(program_, weights_->shared_queue());
  bind(*workspace_);
  find_state_parts();
  call_ = {.batch = {.rows = rows(), .steps = 1}, .threads = target_.execution.threads, .stream = queue_.stream()};
  workspace_->refresh(call_);
  if (target_.execution.device.is_cuda()) record();
  keys_.resize(static_cast<std::size_t>(rows()));
  counters_.resize(static_cast<std::size_t>(rows()));
  for (Index row = 0; row < rows(); ++row) seed(row, static_cast<std::uint64_t>(row));
}

SessionRows::~SessionRows() {
  try {
    queue_.synchronize();  // nothing that is under way may outlive its memory
  } catch (const Error&) {
    // The callers that waited for a step have already got its error.
  }
}

void SessionRows::bind(graph::Workspace& workspace) {
  workspace.bind(weights_);
  workspace.bind(data_.vocabulary > 0 ? graph::Home::tokens : graph::Home::features, input_.data());
  workspace.bind(graph::Home::outputs, output_.data());
  workspace.bind(graph::Home::state_in, state_.data());
  workspace.bind(graph::Home::state_out, state_.data());
}

void SessionRows::record() {
  recording_.emplace(queue_, [this] {
    input_.start_upload(staged_input_.data(), input_.bytes());
    if (slots_) slots_->numbers.start_upload(slots_->staged.data(), slots_->numbers.bytes());
    const auto copy = [&](std::unique_ptr<ops::Executable> Slots::Part::*way) {
      if (!slots_) return;
      for (const Slots::Part& part : slots_->parts) (part.*way)->run(call_, {.values = part.operands.data()});
    };
    copy(&Slots::Part::load);
    workspace_->run(call_);
    copy(&Slots::Part::store);
    output_.start_download(staged_output_.data(), output_.bytes());
  });
}

void SessionRows::use_states(ops::Buffer& array) {
  const std::size_t bytes = static_cast<std::size_t>(rows()) * sizeof(std::int32_t);
  slots_ = Slots{ops::StagingBuffer(queue_, bytes), ops::Buffer(queue_, bytes), {}};
  auto* const all = static_cast<float*>(array.data());
  auto* const own = static_cast<float*>(state_.data());
  constexpr int vector = 4 * sizeof(float);
  const Index stride = state_size() / rows();
  for (const StatePart& part : state_parts_) {
    const bool aligned = part.alone % 4 == 0 && part.width % 4 == 0 && stride % 4 == 0;
    const ops::NumberedRows shape{part.width, stride, aligned ? vector : int{sizeof(float)}};
    slots_->parts.push_back({{all + part.alone, slots_->numbers.data(), own + part.begin},
                             ops::gather_rows(shape).prepare(target_),
                             ops::scatter_rows(shape).prepare(target_)});
  }
  std::memset(staged_input_.data(), 0, staged_input_.bytes());  // rows without a slot are computed, too
  record();
}

std::span<const float> SessionRows::step() {
  const auto count = output_.bytes() / sizeof(float);
  if (!recording_) {
    workspace_->run(call_);
    return {static_cast<const float*>(output_.data()), count};
  }
  recording_->run();
  queue_.synchronize();
  return {reinterpret_cast<const float*>(staged_output_.data()), count};
}

std::span<const float> SessionRows::push(const std::int32_t* tokens) {
  std::memcpy(input(), tokens, input_.bytes());
  return step();
}

std::span<const float> SessionRows::push(const float* features) {
  std::memcpy(input(), features, input_.bytes());
  return step();
}

void SessionRows::find_state_parts() {
  for (const graph::Value& value : workspace_->program().graph().values()) {
    if (value.home != graph::Home::state_in) continue;
    const Index width = value.width / value.states;
    for (Index state = 0; state < value.states; ++state) {
      const Index alone = value.offset + state * width;
      state_parts_.push_back({.alone = alone, .begin = alone * rows(), .width = width});
    }
  }
}

void SessionRows::reset(Index row) {
  require_argument(row >= 0 && row < rows(), "row", row, "in 0..{}", rows() - 1);
  for (const StatePart& part : state_parts_) state_.zero(floats(part.width), floats(part.begin + row * part.width));
}

void SessionRows::set_row(Index row, const float* state) {
  auto* const all = static_cast<float*>(state_.data());
  for (const StatePart& part : state_parts_) {
    std::copy_n(state + part.alone, part.width, all + part.begin + row * part.width);
  }
}

void SessionRows::copy_row(Index row, float* state) const {
  const auto* const all = static_cast<const float*>(state_.data());
  for (const StatePart& part : state_parts_) {
    std::copy_n(all + part.begin + row * part.width, part.width, state + part.alone);
  }
}

std::vector<float> SessionRows::state() const {
  std::vector<float> values(static_cast<std::size_t>(state_size()));
  state_.download(values.data(), state_.bytes());
  return values;
}

void SessionRows::seed(Index row, std::uint64_t seed) {
  require_argument(row >= 0 && row < rows(), "row", row, "in 0..{}", rows() - 1);
  keys_[static_cast<std::size_t>(row)] = counter_random::key_of(seed, 0);
  counters_[static_cast<std::size_t>(row)] = 0;
  seeded_ = true;
}

SessionRows::Generation& SessionRows::generation_for(const Sampling& sampling) {
  if (generation_ && generation_->sampling == sampling) return *generation_;
  generation_.reset();
  if (draws_.bytes() == 0) {
    draws_ = ops::Buffer(queue_, 2 * keys_.size() * sizeof(std::uint64_t));
    history_ = ops::Buffer(queue_, static_cast<std::size_t>(rows() * kHistory) * sizeof(std::int32_t));
    staged_history_.emplace(queue_, history_.bytes());
  }
  Generation& made = generation_.emplace();
  made.sampling = sampling;
  made.workspace.emplace(nn::generation_program(spec_, data_, sampling, kHistory, target_), weights_->shared_queue());
  bind(*made.workspace);
  made.workspace->bind(graph::Home::draws, draws_.data());
  made.workspace->bind(graph::Home::history, history_.data());
  made.workspace->refresh(call_);
  const auto record = [&](Index steps) {
    return ops::Recording(queue_, [this, steps, workspace = &*made.workspace] {
      for (Index i = 0; i < steps; ++i) workspace->run(call_);
    });
  };
  made.one.emplace(record(1));
  made.several.emplace(record(kRecordedSteps));
  return made;
}

void SessionRows::upload_draws() {
  if (!seeded_) return;
  const std::size_t bytes = keys_.size() * sizeof(std::uint64_t);
  draws_.upload(keys_.data(), bytes);
  draws_.upload(counters_.data(), bytes, bytes);
  seeded_ = false;
}

void SessionRows::run(const Generation& generation, Index steps) {
  for (; steps >= kRecordedSteps; steps -= kRecordedSteps) generation.several->run();
  for (; steps > 0; --steps) generation.one->run();
}

void SessionRows::read_history(Index done, Index steps, Index row_stride, std::int32_t* tokens) {
  history_.start_download(staged_history_->data(), history_.bytes());
  queue_.synchronize();
  const auto* const history = reinterpret_cast<const std::int32_t*>(staged_history_->data());
  for (Index row = 0; row < rows(); ++row) {
    std::uint64_t& counter = counters_[static_cast<std::size_t>(row)];
    for (Index i = 0; i < steps; ++i, ++counter) {
      const std::int32_t token = history[row * kHistory + static_cast<Index>(counter % kHistory)];
      if (token < 0) fail(ErrorCode::numerical, "row {}: logits are not finite: no token can be drawn", row);
      tokens[row * row_stride + done + i] = token;
    }
  }
}

void SessionRows::generate(const Sampling& sampling, Index steps, std::int32_t* tokens) {
  const Generation& generation = generation_for(sampling);
  upload_draws();
  for (Index done = 0; done < steps;) {
    const Index now = std::min(steps - done, kHistory);
    seeded_ = true;  // unless all that follows goes well, the counters here and there differ
    run(generation, now);
    read_history(done, now, steps, tokens);
    seeded_ = false;
    done += now;
  }
}

}  // namespace penstock::streaming
