#pragma once

#include <bit>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "base/random.h"
#include "nn/layer/recurrent_graph.h"
#include "ops/memory/memory.h"
#include "ops/memory/recording.h"

namespace penstock::training {

/// Passes of a recurrent stack over generated numbers, in memory of its own. Like ForwardPass of a profile, it has
/// program(), queue() and run().
class LayerPass {
 public:
  LayerPass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution, Pass which)
      : queue_(std::make_shared<ops::Queue>(execution.device)), form_(form), forward_(spec, form, execution, queue_) {
    call_ = {
        .batch = {.rows = form.rows, .steps = form.steps}, .threads = execution.threads, .stream = queue_->stream()};
    if (form.has(CallFlag::training)) tape_ = ops::Buffer(*queue_, forward_.pass.tape.bytes);
    start(forward_);
    if (which == Pass::forward) return;
    forward_.workspace.run(call_);  // fills the tape
    backward_.emplace(nn::backward_pass(spec, form, execution, forward_.pass.tape), queue_);
    start(*backward_);
  }

  const graph::Program& program() { return measured().workspace.program(); }
  ops::Queue& queue() { return *queue_; }
  void run(graph::Observer* observer) {
    graph::Workspace& workspace = measured().workspace;
    workspace.observe(observer);
    if (observer != nullptr) return workspace.run(call_);
    if (!recording_) recording_.emplace(*queue_, [&] { workspace.run(call_); });
    recording_->run();
  }

 private:
  struct One {
    One(nn::StackPass given, const std::shared_ptr<ops::Queue>& queue)
        : pass(std::move(given)), workspace(pass.program, queue) {}
    One(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution,
        const std::shared_ptr<ops::Queue>& queue)
        : One(nn::forward_pass(spec, form, execution), queue) {}

    nn::StackPass pass;
    graph::Workspace workspace;
  };

  One& measured() { return backward_ ? *backward_ : forward_; }

  void start(One& one) {
    const nn::StackPass& pass = one.pass;
    const DType states = form_.dtype == DType::f64 ? DType::f64 : DType::f32;
    for (const graph::ValueId id : {pass.x, pass.y, pass.dy, pass.dx}) bind(one, id, form_.dtype);
    for (const graph::ValueId id : {pass.state_in, pass.state_out, pass.dstate_out, pass.dstate_in}) {
      bind(one, id, states);
    }
    for (const graph::ValueId id : pass.weights) bind(one, id, form_.weights);
    for (const graph::ValueId id : pass.gradients) bind(one, id, states);
    if (form_.has(CallFlag::training)) pass.bind_tape(one.workspace, tape_.data());
    if (pass.derived_bytes > 0) {
      pass.bind_derived(one.workspace, buffers_.emplace_back(*queue_, pass.derived_bytes).data());
      one.workspace.run(graph::Phase::weights, call_);
    }
  }

  void bind(One& one, graph::ValueId id, DType type) {
    if (!id) return;
    ops::Buffer& buffer = buffers_.emplace_back(*queue_, one.workspace.program().bytes(id));
    const std::vector<std::byte> numbers = small_numbers(buffer.bytes(), type);
    buffer.upload(numbers.data(), numbers.size());
    one.workspace.bind(id, buffer.data());
  }

  /// Returns numbers of random signs and digits between 1/16 and 1/8 in magnitude.
  std::vector<std::byte> small_numbers(std::size_t bytes, DType type) {
    std::vector<std::byte> numbers(bytes);
    const std::size_t size = size_of(type);
    for (std::size_t at = 0; at + size <= bytes; at += size) {
      const double value = (1.0 + random_.uniform()) / 16.0 * (random_.uniform() < 0.5 ? -1.0 : 1.0);
      const auto single = static_cast<float>(value);
      const auto bits = std::bit_cast<std::uint32_t>(single);
      // The first digits of a float: those of bf16, or of f16, whose exponents count from 15 and not 127.
      const auto half = static_cast<std::uint16_t>(
          type == DType::bf16 ? bits >> 16 : (bits >> 16 & 0x8000) | (11u << 10) | (bits >> 13 & 0x3FF));
      if (size == sizeof value) std::memcpy(&numbers[at], &value, size);
      if (size == sizeof single) std::memcpy(&numbers[at], &single, size);
      if (size == sizeof half) std::memcpy(&numbers[at], &half, size);
    }
    return numbers;
  }

  std::shared_ptr<ops::Queue> queue_;
  RecurrentForm form_;
  Random random_{1};
  std::deque<ops::Buffer> buffers_;
  ops::Buffer tape_;
  One forward_;
  std::optional<One> backward_;
  ops::Call call_;
  std::optional<ops::Recording> recording_;
};

}  // namespace penstock::training
