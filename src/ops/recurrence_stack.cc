#include "ops/recurrence_stack.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "backend/cpu/machine.h"
#include "base/check.h"
#include "base/threads.h"
#include "plan/cell_table.h"
#include "plan/wavefront.h"

namespace penstock::ops {

namespace {

constexpr int reads_of_layer = 6;   // state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels
constexpr int writes_of_layer = 2;  // y, state_out

/// As the memory of programs is aligned, so that what follows is, too.
std::size_t padded(std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Where the operands of a layer lie among those of the stack.
struct LayerOperands {
  LayerOperands(const Operands& all, std::size_t layers, std::size_t layer) : all_(all) {
    read_ = 1 + static_cast<int>(layer) * reads_of_layer;
    const int writes = 1 + static_cast<int>(layers) * reads_of_layer;
    write_ = writes + static_cast<int>(layer) * writes_of_layer;
    x_ = layer == 0 ? 0 : write_ - writes_of_layer;
  }
  void* x() const { return all_.values[x_]; }
  void* read(int i) const { return all_.values[read_ + i]; }
  void* y() const { return all_.values[write_]; }
  void* state_out() const { return all_.values[write_ + 1]; }

 private:
  const Operands& all_;
  int x_ = 0, read_ = 0, write_ = 0;
};

/// Each layer whole, then the next.
class OneByOne final : public Executable {
 public:
  OneByOne(const std::vector<Recurrence>& layers, const Target& target) {
    for (const Recurrence& layer : layers) {
      layers_.push_back(recurrence_forward(layer).prepare(target));
      persistent_.push_back(persistent_bytes_);
      scratch_bytes_ = std::max(scratch_bytes_, layers_.back()->scratch_bytes());
      persistent_bytes_ += padded(layers_.back()->persistent_bytes());
    }
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  std::size_t persistent_bytes() const override { return persistent_bytes_; }

  void run(const Call& call, const Operands& memory) override {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const LayerOperands of(memory, layers_.size(), l);
      void* const values[] = {of.x(),     of.read(0), of.read(1), of.read(2),     of.read(3),
                              of.read(4), of.read(5), of.y(),     of.state_out(), nullptr};
      layers_[l]->run(call, {values, memory.scratch, static_cast<std::byte*>(memory.persistent) + persistent_[l]});
    }
  }

 private:
  std::vector<std::unique_ptr<Executable>> layers_;
  std::vector<std::size_t> persistent_;
  std::size_t scratch_bytes_ = 0, persistent_bytes_ = 0;
};

/// Chunks of all layers, each on one thread, in any order in which a chunk comes after that of the layer below and
/// after the chunk before it.
class Wavefront final : public Executable {
 public:
  Wavefront(const std::vector<Recurrence>& layers, const Target& target, Index chunk)
      : steps_(target.steps),
        chunk_(chunk),
        chunks_((target.steps + chunk - 1) / chunk),
        threads_(resolve_threads(target.execution.threads)),
        value_bytes_(size_of(target.dtype)),
        layers_(layers.size()) {
    for (std::size_t l = 0; l < layers.size(); ++l) prepare(layers[l], target, layers_[l]);
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }

  void run(const Call& call, const Operands& memory) override {
    const int threads = resolve_threads(call.threads);
    require(threads == threads_, "threads must be {}, for which this program was prepared, not {}", threads_, threads);
    for (Layer& layer : layers_) layer.done.store(0, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    const int team = std::min(threads_, static_cast<int>(layers_.size()));
    run_team(team, [&](int thread, int) { work(thread, team, call, memory); });
  }

 private:
  struct Layer {
    Recurrence shape;
    std::unique_ptr<Executable> whole, rest;  // of a chunk, and of the last one if that is shorter
    std::size_t scratch = 0, state = 0;       // where they lie in the scratch
    std::vector<Index> lengths;               // of the chunk's rows
    std::vector<std::uint8_t> reset;          // [B, chunk]
    alignas(64) std::atomic<Index> done{0};   // chunks
    alignas(64) std::atomic<bool> busy{false};
  };

  void prepare(const Recurrence& shape, const Target& target, Layer& layer) {
    const auto whole_or = [](const SequenceStrides& strides, Index steps, Index channels) {
      return strides == SequenceStrides{} ? SequenceStrides{steps * channels, channels} : strides;
    };
    layer.shape = shape;
    layer.shape.x_strides = whole_or(shape.x_strides, steps_, shape.input);
    layer.shape.y_strides = whole_or(shape.y_strides, steps_, shape.hidden);
    Target part = target;
    part.execution.threads = 1;
    const auto of_steps = [&](Index steps) {
      part.steps = steps;
      return recurrence_forward(layer.shape).prepare(part);
    };
    layer.whole = of_steps(chunk_);
    std::size_t scratch = layer.whole->scratch_bytes();
    if (const Index rest = steps_ % chunk_; rest > 0) {
      layer.rest = of_steps(rest);
      scratch = std::max(scratch, layer.rest->scratch_bytes());
    }
    const auto rows = static_cast<std::size_t>(target.rows);
    if (target.lengths) layer.lengths.resize(rows);
    if (target.reset) layer.reset.resize(rows * static_cast<std::size_t>(chunk_));
    layer.scratch = take(scratch);
    layer.state =
        take(static_cast<std::size_t>(shape.state_size() * shape.state_pitch * target.rows) * size_of(target.master()));
  }

  std::size_t take(std::size_t bytes) {
    const std::size_t at = scratch_bytes_;
    scratch_bytes_ += padded(bytes);
    return at;
  }

  void work(int thread, int team, const Call& call, const Operands& memory) {
    try {
      for (int idle = 0; !failed_.load(std::memory_order_relaxed);) {
        if (all_done()) return;
        idle = advance(thread, team, call, memory) ? 0 : idle + 1;
        constexpr int patience = 256;
        if (idle > patience) std::this_thread::yield();
      }
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
      throw;
    }
  }

  bool all_done() const { return layers_.back().done.load(std::memory_order_acquire) == chunks_; }

  /// Runs one chunk that is due, if there is one: rather of a layer whose weights this thread has in its cache, and
  /// rather of a layer far up, so that the waves stay steep.
  bool advance(int thread, int team, const Call& call, const Operands& memory) {
    for (const bool own : {true, false}) {
      for (std::size_t l = layers_.size(); l-- > 0;) {
        if ((static_cast<int>(l) % team == thread) == own && advance_layer(l, call, memory)) return true;
      }
    }
    return false;
  }

  bool is_due(std::size_t l) const {
    const Index next = layers_[l].done.load(std::memory_order_acquire);
    return next < chunks_ && (l == 0 || layers_[l - 1].done.load(std::memory_order_acquire) > next);
  }

  bool advance_layer(std::size_t l, const Call& call, const Operands& memory) {
    Layer& layer = layers_[l];
    if (!is_due(l) || layer.busy.exchange(true, std::memory_order_acquire)) return false;
    const bool due = is_due(l);  // still, now that nobody else is at it
    if (due) {
      const Index next = layer.done.load(std::memory_order_relaxed);
      run_chunk(l, next, call, memory);
      layer.done.store(next + 1, std::memory_order_release);
    }
    layer.busy.store(false, std::memory_order_release);
    return due;
  }

  void run_chunk(std::size_t l, Index number, const Call& call, const Operands& memory) {
    Layer& layer = layers_[l];
    const bool backwards = layer.shape.reverse;
    const Index chunk = backwards ? chunks_ - 1 - number : number;
    const Index begin = chunk * chunk_, steps = std::min(chunk_, steps_ - begin);
    const LayerOperands of(memory, layers_.size(), l);
    auto* const scratch = static_cast<std::byte*>(memory.scratch);
    void* const state = of.state_out() != nullptr ? of.state_out() : scratch + layer.state;
    void* const entering = number == 0 ? of.read(0) : state;
    void* const values[] = {
        at(of.x(), begin, layer.shape.x_strides), entering, of.read(1), of.read(2), of.read(3), of.read(4), of.read(5),
        at(of.y(), begin, layer.shape.y_strides), state,    nullptr};
    Call part = call;
    part.threads = 1;
    part.batch = batch_of(call.batch, begin, steps, layer);
    (steps == chunk_ ? layer.whole : layer.rest)->run(part, {values, scratch + layer.scratch, nullptr});
  }

  /// Where a step of a sequence of this program's type begins.
  void* at(void* sequence, Index step, const SequenceStrides& strides) const {
    return static_cast<std::byte*>(sequence) + static_cast<std::size_t>(step * strides.step) * value_bytes_;
  }

  /// The rows' steps from `begin` on.
  static Batch batch_of(const Batch& all, Index begin, Index steps, Layer& layer) {
    Batch part{.rows = all.rows, .steps = steps};
    if (all.lengths != nullptr) {
      for (Index b = 0; b < all.rows; ++b) {
        layer.lengths[static_cast<std::size_t>(b)] = std::clamp<Index>(all.lengths[b] - begin, 0, steps);
      }
      part.lengths = layer.lengths.data();
    }
    if (all.reset != nullptr) {
      for (Index b = 0; b < all.rows; ++b) {
        std::copy_n(all.reset + b * all.steps + begin, steps, layer.reset.data() + b * steps);
      }
      part.reset = layer.reset.data();
    }
    return part;
  }

  Index steps_, chunk_, chunks_;
  int threads_;
  std::size_t value_bytes_ = 0, scratch_bytes_ = 0;
  std::vector<Layer> layers_;
  std::atomic<bool> failed_{false};
};

bool is_scan(const std::vector<Recurrence>& layers) {
  return std::ranges::any_of(layers, [](const Recurrence& layer) { return layer.is_scan(); });
}

std::int64_t recurrent_bytes(const Recurrence& layer, const Target& target) {
  const bool halved = target.execution.precision != Precision::full;
  const Index values = plan::cell_traits(layer.cell).info.gates * layer.hidden * (layer.hidden / layer.heads);
  return values * static_cast<std::int64_t>(halved ? 2 : size_of(target.dtype));
}

/// Steps of a chunk, or 0 for layer after layer. Scans have all steps to share among threads, and packed rows have
/// chunks nowhere in common.
Index chunk_of(const std::vector<Recurrence>& layers, const Target& target) {
  if (target.device.is_cuda() || target.packed > 0 || target.training || is_scan(layers)) return 0;
  return plan::wavefront_chunk({.layers = static_cast<Index>(layers.size()),
                                .rows = target.rows,
                                .steps = target.steps,
                                .threads = resolve_threads(target.execution.threads),
                                .layer_bytes = recurrent_bytes(layers.back(), target)},
                               cpu::machine());
}

}  // namespace

Op recurrence_stack(const std::vector<Recurrence>& layers) {
  Op op{layers.front().cell + ".stack", [layers](const Target& target) -> std::unique_ptr<Executable> {
          if (const Index chunk = chunk_of(layers, target)) return std::make_unique<Wavefront>(layers, target, chunk);
          return std::make_unique<OneByOne>(layers, target);
        }};
  for (const Recurrence& layer : layers) op.products += recurrence_forward(layer).products;
  return op;
}

}  // namespace penstock::ops
