#include "base/alive.h"
#include "base/check.h"
#include "nn/enough_memory.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/embedding.h"
#include "penstock/stop.h"
#include "stream/session_rows.h"

namespace penstock {

using streaming::require_features, streaming::require_near, streaming::require_tokens;

namespace {

/// Outputs that are not finite come of a state that is not, or soon will make one: whatever follows would be lost.
std::span<const float> checked(std::span<const float> outputs, streaming::SessionRows& row) {
  if (ops::all_finite(1, static_cast<Index>(outputs.size()), outputs.data())) return outputs;
  row.reset();
  fail(ErrorCode::numerical, "the model's answer is not finite; the session was reset");
}

/// Returns the bytes of the rows' states and of the buffers of a step.
std::size_t bytes_of(const Model& model, Index rows, const Execution& execution) {
  const Model::Impl& impl = model.impl();
  const auto own = static_cast<std::size_t>(rows * (impl.state_size + impl.inputs() + impl.outputs())) * sizeof(float);
  return own + impl.programs.program(impl.spec, impl.data, model_target(rows, 1, execution))->workspace_bytes();
}

}  // namespace

struct Session::Impl {
  Impl(const Model::Impl& model, Index count, const Execution& execution) : row(model, count, execution) {}
  explicit Impl(const streaming::SessionRows& other) : row(other) {}

  streaming::SessionRows row;
};

struct SessionBatch::Impl {
  Impl(const Model::Impl& model, Index count, const Execution& execution) : rows(model, count, execution) {}

  streaming::SessionRows rows;
};

Session::Session(const Model& model, const Execution& execution) : impl_(new Impl(model.impl(), 1, execution)) {}
Session::Session(const Model& model, Precision precision) : Session(model, Execution{.precision = precision}) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

Session::Impl& Session::held() const { return alive(impl_, "the session"); }

std::span<const float> Session::push(std::int32_t token) {
  auto& row = held().row;
  require_tokens(row.data());
  ops::check_tokens({}, &token, row.data().vocabulary);
  return checked(row.push(&token), row);
}

std::span<const float> Session::push(std::span<const float> features) {
  auto& row = held().row;
  require_features(row.data(), 1, features.size());
  require_near(features);
  return checked(row.push(features.data()), row);
}

namespace {

/// `push(t)` is a step of the session.
template <class Push>
std::vector<float> push_all(Session& session, std::size_t steps, const Push& push) {
  const std::vector<float> before = session.state();
  std::vector<float> outputs;
  for (std::size_t t = 0; t < steps; ++t) {
    try {
      stop_if_asked();
      const std::span<const float> output = push(t);
      outputs.insert(outputs.end(), output.begin(), output.end());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::interrupted || error.code() == ErrorCode::invalid_argument)
        session.restore(before);
      if (error.code() == ErrorCode::interrupted) throw;
      throw error.within(fmt::format("step {}: ", t));
    }
  }
  return outputs;
}

}  // namespace

std::vector<float> Session::process_chunk(std::span<const std::int32_t> tokens) {
  return push_all(*this, tokens.size(), [&](std::size_t t) { return push(tokens[t]); });
}

std::vector<float> Session::process_chunk(std::span<const float> features) {
  const DataDescription& data = held().row.data();
  require(data.vocabulary == 0, "this model reads tokens, not features");
  const auto width = static_cast<std::size_t>(data.input_size());
  require(features.size() % width == 0, "features must hold rows of {} values, not {} values", width, features.size());
  return push_all(*this, features.size() / width,
                  [&](std::size_t t) { return push(features.subspan(t * width, width)); });
}

void Session::reset() { held().row.reset(); }

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session Session::clone() const { return Session(std::make_unique<Impl>(held().row)); }

std::vector<float> Session::state() const { return held().row.state(); }

void Session::restore(std::span<const float> state) {
  streaming::require_state(held().row.state_size(), state);
  held().row.restore(state);
}

SessionBatch::SessionBatch(const Model& model, Index rows, const Execution& execution) {
  require_argument(rows >= 1, "rows", rows, "at least 1");
  const auto need = [&] {
    return nn::MemoryNeed{fmt::format("a session of {} rows", rows),
                          [&] { return bytes_of(model, rows, execution); },
                          {"fewer rows (", the_option("streams"), ") need less"}};
  };
  impl_ = nn::with_enough_memory(execution.device, need,
                                 [&] { return std::make_unique<Impl>(model.impl(), rows, execution); });
}
SessionBatch::~SessionBatch() = default;
SessionBatch::SessionBatch(SessionBatch&&) noexcept = default;
SessionBatch& SessionBatch::operator=(SessionBatch&&) noexcept = default;

SessionBatch::Impl& SessionBatch::held() const { return alive(impl_, "the batch of sessions"); }

Index SessionBatch::rows() const { return held().rows.rows(); }

std::span<const float> SessionBatch::push(std::span<const std::int32_t> tokens) {
  require_tokens(held().rows.data());
  require(static_cast<Index>(tokens.size()) == rows(), "tokens must hold {} values, not {}", rows(), tokens.size());
  ops::check_tokens({.rows = rows(), .steps = 1}, tokens.data(), held().rows.data().vocabulary);
  return held().rows.push(tokens.data());
}

std::span<const float> SessionBatch::push(std::span<const float> features) {
  auto& all = held().rows;
  require_features(all.data(), rows(), features.size());
  require_near(features);
  return all.push(features.data());
}

void SessionBatch::reset() { held().rows.reset(); }
void SessionBatch::reset(Index row) { held().rows.reset(row); }
void SessionBatch::seed(Index row, std::uint64_t seed) { held().rows.seed(row, seed); }

void SessionBatch::generate(const Sampling& sampling, Index steps, std::span<std::int32_t> tokens) {
  const DataDescription& data = held().rows.data();
  require_tokens(data);
  require(data.task == Task::language, "a model generates that was trained to continue a text, not for another task");
  require_argument(steps >= 0, "steps", steps, "at least 0");
  require(static_cast<Index>(tokens.size()) == rows() * steps, "tokens must hold {} values (rows {}, steps {}), not {}",
          rows() * steps, rows(), steps, tokens.size());
  held().rows.generate(sampling, steps, tokens.data());
}

}  // namespace penstock
