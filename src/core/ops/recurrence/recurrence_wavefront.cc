// Recurrent layers of dense cells on top of each other as a wavefront on the threads of a CPU.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "ops/pointwise/dropout.h"
#include "ops/recurrence/cpu_recurrence.h"
#include "ops/recurrence/recurrence_stack_operands.h"
#include "penstock/types.h"

namespace penstock::ops {

namespace {

/// Chunks of layers that read each other: a chunk is run by one thread, in any order in which it comes after the chunk
/// before it and after the same chunk of the layer before it.
class WavefrontTeam {
 public:
  /// Layers are numbered in the order in which they read each other. At most one thread for each takes part.
  WavefrontTeam(std::size_t layers, int threads);

  /// Calls run_chunk(layer, chunk) for every layer and chunk 0..chunks-1. Allocates nothing; an exception of a call
  /// ends the run and reaches the caller.
  void run(Index chunks, const std::function<void(std::size_t layer, Index chunk)>& run_chunk);

 private:
  struct Layer {
    alignas(64) std::atomic<Index> done{0};  // chunks
    alignas(64) std::atomic<bool> busy{false};
  };
  using RunChunk = std::function<void(std::size_t, Index)>;

  void work(int thread, int team, const RunChunk& run_chunk);
  bool advance(int thread, int team, const RunChunk& run_chunk);
  bool advance_layer(std::size_t layer, const RunChunk& run_chunk);
  bool is_due(std::size_t layer) const;
  bool all_done() const { return layers_.back().done.load(std::memory_order_acquire) == chunks_; }

  std::vector<Layer> layers_;
  int threads_;
  Index chunks_ = 0;
  std::atomic<bool> failed_{false};
};

WavefrontTeam::WavefrontTeam(std::size_t layers, int threads)
    : layers_(layers), threads_(std::min(threads, static_cast<int>(layers))) {}

void WavefrontTeam::run(Index chunks, const RunChunk& run_chunk) {
  chunks_ = chunks;
  for (Layer& layer : layers_) {
    layer.done.store(0, std::memory_order_relaxed);
    layer.busy.store(false, std::memory_order_relaxed);
  }
  failed_.store(false, std::memory_order_relaxed);
  run_team(threads_, [&](int thread, int team) { work(thread, team, run_chunk); });
}

void WavefrontTeam::work(int thread, int team, const RunChunk& run_chunk) {
  try {
    for (int idle = 0; !failed_.load(std::memory_order_relaxed);) {
      if (all_done()) return;
      idle = advance(thread, team, run_chunk) ? 0 : idle + 1;
      constexpr int patience = 256;
      if (idle > patience) std::this_thread::yield();
    }
  } catch (...) {
    failed_.store(true, std::memory_order_relaxed);
    throw;
  }
}

/// Runs one chunk that is due, if there is one: rather of a layer whose weights this thread has in its cache, and
/// rather of a layer far up, so that the waves stay steep.
bool WavefrontTeam::advance(int thread, int team, const RunChunk& run_chunk) {
  for (const bool own : {true, false}) {
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
      if ((static_cast<int>(layer) % team == thread) == own && advance_layer(layer, run_chunk)) return true;
    }
  }
  return false;
}

bool WavefrontTeam::is_due(std::size_t layer) const {
  const Index next = layers_[layer].done.load(std::memory_order_acquire);
  return next < chunks_ && (layer == 0 || layers_[layer - 1].done.load(std::memory_order_acquire) > next);
}

bool WavefrontTeam::advance_layer(std::size_t number, const RunChunk& run_chunk) {
  Layer& layer = layers_[number];
  if (!is_due(number) || layer.busy.exchange(true, std::memory_order_acquire)) return false;
  const bool due = is_due(number);  // still, now that nobody else is at it
  if (due) {
    const Index next = layer.done.load(std::memory_order_relaxed);
    run_chunk(number, next);
    layer.done.store(next + 1, std::memory_order_release);
  }
  layer.busy.store(false, std::memory_order_release);
  return due;
}

/// Layers, each of which is run by one thread at a time, and the memory they work in.
template <class Layer>
class Wavefront : public Executable {
 public:
  std::size_t scratch_bytes() const override { return scratch_bytes_; }

 protected:
  Wavefront(const RecurrenceStack& stack, const Target& target, Index chunk)
      : shapes_(stack.layers),
        dropout_(target.has(CallFlag::training) ? stack.dropout : 0.0),
        chunk_(chunk),
        steps_(target.steps),
        threads_(resolve_threads(target.execution.threads)),
        sequence_bytes_(sequence_bytes(stack.layers.front(), target)),
        team_(stack.layers.size(), threads_) {
    Target of_thread = target;
    of_thread.execution.threads = 1;
    for (const Recurrence& shape : shapes_) {
      layers_.push_back(std::make_unique<Layer>(shape, of_thread));
      scratch_.push_back(take(layers_.back()->scratch_bytes()));
    }
  }

  std::size_t take(std::size_t bytes) {
    const std::size_t at = scratch_bytes_;
    scratch_bytes_ += padded_bytes(bytes);
    return at;
  }

  bool drops() const { return dropout_ > 0; }
  Index chunks() const { return (steps_ + chunk_ - 1) / chunk_; }
  std::byte* scratch(const Operands& memory, std::size_t offset) const {
    return static_cast<std::byte*>(memory.scratch) + offset;
  }

  /// The call as one layer's thread sees it. All layers read the batch before the first chunk.
  Call begin(const Call& call) {
    const int threads = resolve_threads(call.threads);
    require_argument(threads == threads_, "threads", threads, "{}, for which this program was prepared", threads_);
    Call part = call;
    part.threads = 1;
    for (const auto& layer : layers_) layer->begin(part);
    return part;
  }

  /// The dropout behind a layer, for some steps of its output or of the gradient of that.
  template <class Real>
  void drop(std::size_t l, const Call& call, StepRange range, const Real* from, Real* to) const {
    const DropoutFactors<Real> factors({dropout_, dropout_site(l)}, call);
    const Recurrence& shape = shapes_[l];
    const SequenceStrides at = strides_or(shape.y_strides, {steps_ * shape.hidden, shape.hidden});
    layers_[l]->layer().batch_rows().for_positions(range, at.row, at.step, [&](Index first) {
      factors.for_each(first, first + shape.hidden, [&](Index i, Real factor) { to[i] = factor * from[i]; });
    });
  }

  std::vector<Recurrence> shapes_;
  double dropout_;
  Index chunk_, steps_;
  int threads_;
  std::size_t sequence_bytes_, scratch_bytes_ = 0;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::size_t> scratch_;  // where that of a layer begins
  WavefrontTeam team_;
};

template <class Real>
class WavefrontForward final : public Wavefront<CpuForward<Real>> {
 public:
  WavefrontForward(const RecurrenceStack& stack, const Target& target, Index chunk)
      : Wavefront<CpuForward<Real>>(stack, target, chunk) {
    if (this->drops()) dropped_ = this->take(this->sequence_bytes_);
  }
  std::size_t opaque_bytes(int write) const override {
    return this->layers_[static_cast<std::size_t>(write / StackForwardLayer::writes)]->opaque_bytes(
        write % StackForwardLayer::writes);
  }

  void run(const Call& call, const Operands& memory) override {
    const auto operands_of = [&](std::size_t l) { return StackForwardLayer(memory, this->layers_.size(), l); };
    const Call part = this->begin(call);
    const auto run_chunk = [&](std::size_t l, Index chunk) {
      StackForwardLayer operands = operands_of(l);
      const StepRange range{chunk * this->chunk_, std::min(this->steps_, (chunk + 1) * this->chunk_)};
      void*& x = operands.values[StackForwardLayer::x];
      if (this->drops() && l > 0) {
        // One sequence for all layers: nobody below reads these steps again.
        auto* const dropped = reinterpret_cast<Real*>(this->scratch(memory, dropped_));
        this->drop(l - 1, call, range, static_cast<const Real*>(x), dropped);
        x = dropped;
      }
      this->layers_[l]->run_steps(part, {operands.values, this->scratch(memory, this->scratch_[l])}, range);
    };
    this->team_.run(this->chunks(), std::cref(run_chunk));
  }

 private:
  std::size_t dropped_ = 0;
};

template <class Real>
class WavefrontBackward final : public Wavefront<CpuBackward<Real>> {
 public:
  WavefrontBackward(const RecurrenceStack& stack, const Target& target, Index chunk)
      : Wavefront<CpuBackward<Real>>(stack, target, chunk) {
    gradient_ = this->take(this->sequence_bytes_);
    for (std::size_t l = 1; this->drops() && l < stack.layers.size(); ++l) {
      dropped_.push_back(this->take(this->sequence_bytes_));
    }
  }

  void run(const Call& call, const Operands& memory) override {
    const std::size_t count = this->layers_.size();
    const auto operands_of = [&](std::size_t l) {
      StackBackwardLayer operands(memory, count, l);
      // One sequence for the gradients between all layers: a layer writes the steps that it has read.
      void* const gradient = this->scratch(memory, gradient_);
      if (l + 1 < count) operands.values[StackBackwardLayer::dy] = gradient;
      if (l > 0) operands.values[StackBackwardLayer::dx] = gradient;
      return operands;
    };
    const Call part = this->begin(call);
    const auto run_chunk = [&](std::size_t from_top, Index chunk) {
      const std::size_t l = count - 1 - from_top;
      StackBackwardLayer operands = operands_of(l);
      const Index end = this->steps_ - chunk * this->chunk_;
      const StepRange range{std::max<Index>(0, end - this->chunk_), end};
      const bool drops = this->drops() && l > 0;
      if (drops) {
        // Each layer has its own: the gradient of its weights reads these steps later.
        auto* const dropped = reinterpret_cast<Real*>(this->scratch(memory, dropped_[l - 1]));
        this->drop(l - 1, call, range, static_cast<const Real*>(operands.values[StackBackwardLayer::x]), dropped);
        operands.values[StackBackwardLayer::x] = dropped;
      }
      this->layers_[l]->run_steps(part, {operands.values, this->scratch(memory, this->scratch_[l])}, range);
      auto* const dx = static_cast<Real*>(operands.values[StackBackwardLayer::dx]);
      if (drops) this->drop(l - 1, call, range, dx, dx);
    };
    this->team_.run(this->chunks(), std::cref(run_chunk));
  }

 private:
  std::size_t gradient_ = 0;
  std::vector<std::size_t> dropped_;  // where what a layer but the lowest has read is
};

}  // namespace

std::unique_ptr<Executable> cpu_wavefront_forward(const RecurrenceStack& stack, const Target& target, Index chunk) {
  return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
    return std::make_unique<WavefrontForward<decltype(real)>>(stack, target, chunk);
  });
}

std::unique_ptr<Executable> cpu_wavefront_backward(const RecurrenceStack& stack, const Target& target, Index chunk) {
  return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
    return std::make_unique<WavefrontBackward<decltype(real)>>(stack, target, chunk);
  });
}

}  // namespace penstock::ops
