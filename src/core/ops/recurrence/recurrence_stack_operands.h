#pragma once

// Where the operands of a layer lie among those of a stack of recurrent layers. Private to src/core/ops.

#include "ops/recurrence/recurrence_stack.h"
#include "plan/wavefront.h"

namespace penstock::ops {

/// Rounds up to the alignment of the memory of programs, so that the next operand is aligned, too.
inline std::size_t padded_bytes(std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Bytes of a sequence that a layer of a stack writes.
inline std::size_t sequence_bytes(const Recurrence& layer, const Target& target) {
  return padded_bytes(static_cast<std::size_t>(target.positions() * layer.hidden) * size_of(target.dtype));
}

/// Operands of a layer's own forward pass (recurrence_forward), but for what it reads instead of x.
struct StackForwardLayer : ForwardOperand {
  static constexpr int reads = y - state_in, writes = states - y;
  void* values[count];

  StackForwardLayer(const Operands& all, std::size_t layers, std::size_t layer) {
    const int first_write = 1 + static_cast<int>(layers) * reads,
              after = first_write + static_cast<int>(layers) * writes;
    const int read = 1 + static_cast<int>(layer) * reads, write = first_write + static_cast<int>(layer) * writes;
    values[x] = layer == 0 ? all.values[0] : all.values[write - writes];
    for (int i = 0; i < reads; ++i) values[state_in + i] = all.values[read + i];
    for (int i = 0; i < writes; ++i) values[y + i] = all.values[write + i];
    values[states] = layer + 1 == layers ? all.values[after] : nullptr;
  }
};

/// Operands of a layer's own backward pass (recurrence_backward), but for the gradients that go from layer to layer.
struct StackBackwardLayer : BackwardOperand {
  static constexpr int reads = dstates - dy, writes = 5;
  void* values[count];

  StackBackwardLayer(const Operands& all, std::size_t layers, std::size_t layer) {
    constexpr int first_read = 3;  // behind x, dy and the gradient of every state
    const int first_write = first_read + static_cast<int>(layers) * reads;
    const int read = first_read + static_cast<int>(layer) * reads,
              write = first_write + static_cast<int>(layer) * writes;
    const bool lowest = layer == 0, highest = layer + 1 == layers;
    values[x] = lowest ? all.values[0] : all.values[read - reads];
    values[y] = all.values[read];
    values[dy] = highest ? all.values[1] : nullptr;
    for (int i = 1; i < reads; ++i) values[dy + i] = all.values[read + i];
    values[dstates] = highest ? all.values[2] : nullptr;
    for (int i = 0; i < writes - 1; ++i) values[dweight_ih + i] = all.values[write + i];
    values[dx] = lowest ? all.values[first_write + static_cast<int>(layers) * writes] : nullptr;
    values[dstate_in] = all.values[write + writes - 1];
  }
};

/// How the layers of a stack run as a wavefront on a GPU, which need not be there.
plan::GpuWavefront plan_gpu_stack(const RecurrenceStack& stack, const Target& target, const plan::GpuModel& gpu,
                                  bool backward);
/// Steps of a chunk on this machine's CPU, or 0 for layer after layer.
Index plan_cpu_stack(const RecurrenceStack& stack, const Target& target, const plan::CpuModel& machine, bool backward);

/// Layers of dense cells as a wavefront on several threads of a CPU, `chunk` steps at a time.
std::unique_ptr<Executable> cpu_wavefront_forward(const RecurrenceStack& stack, const Target& target, Index chunk);
std::unique_ptr<Executable> cpu_wavefront_backward(const RecurrenceStack& stack, const Target& target, Index chunk);

}  // namespace penstock::ops
