#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nn/model/model_impl.h"
#include "penstock/network.h"

/// The states of the sessions of a SessionPool, and batches of rows that take a step for some of them.
namespace penstock::streaming {

/// The states of all sessions, by the number of their slot. Each has PoolForm::state_size values, in the order of a
/// session by itself.
class PoolStates {
 public:
  virtual ~PoolStates() = default;
  virtual void clear(Index slot) = 0;
  virtual void set(Index slot, std::span<const float> state) = 0;
  virtual void copy(Index slot, std::span<float> state) const = 0;
};

/// States in the memory of the host.
class HostStates final : public PoolStates {
 public:
  HostStates(Index slots, Index size)
      : size_(static_cast<std::size_t>(size)), values_(static_cast<std::size_t>(slots) * size_) {}

  std::span<float> at(Index slot) { return std::span(values_).subspan(static_cast<std::size_t>(slot) * size_, size_); }
  void clear(Index slot) override { std::ranges::fill(at(slot), 0.0f); }
  void set(Index slot, std::span<const float> state) override { std::ranges::copy(state, at(slot).begin()); }
  void copy(Index slot, std::span<float> state) const override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(slot) * size_), size_,
                state.begin());
  }

 private:
  std::size_t size_;
  std::vector<float> values_;
};

/// A step of a session: its position in the inputs and outputs of a call, and the slot of its state.
struct PoolStep {
  Index position, slot;
};

/// Returns whether the positions of some steps, which increase, follow each other without gaps.
inline bool are_gapless(std::span<const PoolStep> steps) {
  return steps.back().position - steps.front().position + 1 == static_cast<Index>(steps.size());
}

/// A batch of rows. A step, a state and outputs of a row have the sizes of its PoolForm.
class PoolRows {
 public:
  virtual ~PoolRows() = default;
  virtual Index rows() const = 0;
  /// Gives the rows from `first` on the states of the steps' slots, and what they read next: int32 tokens or float
  /// features, at the steps' positions in `values`.
  virtual void set_rows(Index first, std::span<const PoolStep> steps, const void* values) = 0;
  /// Takes a step of the rows that are set, the first `count`.
  virtual void step(Index count) = 0;
  /// Copies the outputs of the first rows to the steps' positions in `outputs`.
  virtual void copy_outputs(std::span<const PoolStep> steps, float* outputs) const = 0;
  /// Gives a slot the state of a row after the step. What a row without finite outputs leaves there is cleared instead.
  virtual void keep_state(Index row, Index slot) = 0;
  /// keep_state() for the first rows and the steps' slots.
  virtual void keep_states(std::span<const PoolStep> steps) = 0;
};

/// A batch on one thread of a CPU.
class HostRows : public PoolRows {
 public:
  /// `states`: null for rows that only read() and write() states. `inputs` and `outputs`: values of a row.
  HostRows(std::shared_ptr<HostStates> states, Index inputs, Index outputs)
      : states_(std::move(states)), inputs_(inputs), outputs_(outputs) {}
  void set_rows(Index first, std::span<const PoolStep> steps, const void* values) final {
    for (const auto [position, slot] : steps) {
      read(first++, states_->at(slot).data(), static_cast<const float*>(values) + position * inputs_);
    }
  }
  void step(Index /*count*/) final { step(); }
  void copy_outputs(std::span<const PoolStep> steps, float* outputs) const final {
    Index row = 0;
    for (const PoolStep& step : steps) copy_outputs(row++, outputs + step.position * outputs_);
  }
  void keep_state(Index row, Index slot) final { write(row, states_->at(slot).data()); }
  void keep_states(std::span<const PoolStep> steps) final {
    Index row = 0;
    for (const PoolStep& step : steps) keep_state(row++, step.slot);
  }

  /// Sets a row.
  virtual void read(Index row, const float* state, const void* step) = 0;
  /// Takes a step of all rows.
  virtual void step() = 0;
  /// Copies the outputs of a row.
  virtual void copy_outputs(Index row, float* outputs) const = 0;
  /// Copies the state of a row after the step.
  virtual void write(Index row, float* state) const = 0;

 private:
  std::shared_ptr<HostStates> states_;
  Index inputs_, outputs_;
};

/// The memory of a pool.
struct PoolParts {
  std::shared_ptr<PoolStates> states;
  std::vector<std::vector<std::unique_ptr<PoolRows>>> batches;  ///< Of each thread, in the order of PoolForm::sizes.
};

/// Sizes of one stream, and of the batches of a pool.
struct PoolForm {
  Index vocabulary = 0;  ///< 0: it reads features
  Index inputs = 0, outputs = 0, state_size = 0;
  std::vector<Index> sizes;  ///< Rows of the batches that a thread has, in increasing order.
  bool pads = false;         ///< Whether a batch of more rows than are ready is faster than several smaller ones.
  std::function<PoolParts(Index threads)> make;
};

/// Returns the parts of a pool on a CPU. `batch(states, i)` makes a batch of `sizes[i]` rows.
template <class Batch>
PoolParts host_parts(Index capacity, Index state_size, Index threads, const std::vector<Index>& sizes,
                     const Batch& batch) {
  const auto states = std::make_shared<HostStates>(capacity, state_size);
  PoolParts parts{states, {}};
  for (Index thread = 0; thread < threads; ++thread) {
    auto& own = parts.batches.emplace_back();
    for (std::size_t i = 0; i < sizes.size(); ++i) own.push_back(batch(states, i));
  }
  return parts;
}

/// For a pool of `capacity` sessions; `execution` has one thread. On a GPU, the states are in its memory.
PoolForm form_of(const Model::Impl& model, Index capacity, const Execution& execution);
/// `shapes` are those of one stream. Throws Error as SessionPool.
PoolForm form_of(const Network& network, const NetworkShapes& shapes, Index capacity);

}  // namespace penstock::streaming
