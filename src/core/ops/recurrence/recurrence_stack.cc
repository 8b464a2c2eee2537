#include "ops/recurrence/recurrence_stack.h"

#include <algorithm>

#include "backend/cpu/machine.h"
#include "base/threads.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/dropout.h"
#include "ops/recurrence/explain.h"
#include "ops/recurrence/recurrence_stack_operands.h"
#include "plan/cell_table.h"
#include "plan/wavefront.h"

namespace penstock::ops {

namespace {

/// Each layer whole, then the next.
class OneByOne : public Executable {
 public:
  std::size_t scratch_bytes() const override { return layer_scratch_ + own_bytes_; }
  std::size_t persistent_bytes() const override { return persistent_bytes_; }

 protected:
  OneByOne(const RecurrenceStack& stack, const Target& target)
      : drops_(target.has(CallFlag::training) && stack.dropout > 0),
        sequence_bytes_(sequence_bytes(stack.layers.front(), target)) {
    for (std::size_t l = 0; drops_ && l + 1 < stack.layers.size(); ++l) {
      const Dropout behind{stack.dropout, dropout_site(l)};
      dropouts_.push_back(dropout(stack.layers[l].hidden, behind).prepare(target));
    }
  }

  void add_layer(std::unique_ptr<Executable> layer) {
    persistent_.push_back(persistent_bytes_);
    persistent_bytes_ += padded_bytes(layer->persistent_bytes());
    layer_scratch_ = std::max(layer_scratch_, padded_bytes(layer->scratch_bytes()));
    layers_.push_back(std::move(layer));
  }

  void run_layer(std::size_t l, const Call& call, void* const* values, const Operands& memory) {
    layers_[l]->run(call, {values, memory.scratch, static_cast<std::byte*>(memory.persistent) + persistent_[l]});
  }

  /// The dropout behind a layer.
  void drop(std::size_t l, const Call& call, void* from, void* to) {
    void* const values[] = {from, to};
    dropouts_[l]->run(call, {values, nullptr, nullptr});
  }

  /// A sequence of the stack's own, behind the scratch of layers.
  void* sequence(const Operands& memory, std::size_t i) const {
    return static_cast<std::byte*>(memory.scratch) + layer_scratch_ + i * sequence_bytes_;
  }

  std::vector<std::unique_ptr<Executable>> layers_, dropouts_;
  std::vector<std::size_t> persistent_;
  bool drops_;
  std::size_t sequence_bytes_, layer_scratch_ = 0, own_bytes_ = 0, persistent_bytes_ = 0;
};

class OneByOneForward final : public OneByOne {
 public:
  OneByOneForward(const RecurrenceStack& stack, const Target& target) : OneByOne(stack, target) {
    for (const Recurrence& layer : stack.layers) add_layer(recurrence_forward(layer).prepare(target));
    if (drops_) own_bytes_ = sequence_bytes_;
  }
  std::size_t opaque_bytes(int write) const override {
    return layers_[static_cast<std::size_t>(write / StackForwardLayer::writes)]->opaque_bytes(
        write % StackForwardLayer::writes);
  }

  void run(const Call& call, const Operands& memory) override {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      StackForwardLayer layer(memory, layers_.size(), l);
      void*& x = layer.values[StackForwardLayer::x];
      if (drops_ && l > 0) {
        drop(l - 1, call, x, sequence(memory, 0));
        x = sequence(memory, 0);
      }
      run_layer(l, call, layer.values, memory);
    }
  }
};

class OneByOneBackward final : public OneByOne {
 public:
  OneByOneBackward(const RecurrenceStack& stack, bool wants_dx, const Target& target) : OneByOne(stack, target) {
    for (std::size_t l = 0; l < stack.layers.size(); ++l) {
      add_layer(recurrence_backward(stack.layers[l], wants_dx || l > 0).prepare(target));
    }
    own_bytes_ = (drops_ ? 3 : 2) * sequence_bytes_;
  }

  void run(const Call& call, const Operands& memory) override {
    for (std::size_t l = layers_.size(); l-- > 0;) {
      StackBackwardLayer layer(memory, layers_.size(), l);
      void *&x = layer.values[StackBackwardLayer::x], *&dx = layer.values[StackBackwardLayer::dx];
      // Gradients from layer to layer take turns in two sequences.
      if (l + 1 < layers_.size()) layer.values[StackBackwardLayer::dy] = sequence(memory, (l + 1) % 2);
      if (l > 0) dx = sequence(memory, l % 2);
      const bool drops = drops_ && l > 0;
      if (drops) {
        drop(l - 1, call, x, sequence(memory, 2));
        x = sequence(memory, 2);
      }
      run_layer(l, call, layer.values, memory);
      if (drops) drop(l - 1, call, dx, dx);
    }
  }
};

std::int64_t recurrent_bytes(const Recurrence& layer, const Target& target) {
  const bool halved = target.execution.precision != Precision::full;
  const Index values = plan::cell_traits(layer.cell).info.gates * layer.hidden * (layer.hidden / layer.heads);
  return values * static_cast<std::int64_t>(halved ? 2 : size_of(target.dtype));
}

/// Returns whether a layer can read chunks of the output of the layer below, and leave it chunks of gradients: the
/// steps must follow each other in memory.
bool steps_follow(const Recurrence& below, const Recurrence& layer, const Target& target, bool backward) {
  const SequenceStrides& x = layer.x_strides;
  if (target.rows > 1 && x != SequenceStrides{layer.input, target.rows * layer.input}) return false;
  return !backward ||
         (!layer.add_dx && strides_or(layer.dx_strides, x) == x && strides_or(below.dy_strides, below.y_strides) == x);
}

/// How the layers run as a wavefront, where they do.
std::vector<PlanReport> explain_wavefront(const RecurrenceStack& stack, const Target& target,
                                          const plan::Machine& machine, bool backward) {
  PlanReport report;
  report.work = fmt::format("{} layers of {}, {}", stack.layers.size(), stack.layers.front().cell,
                            backward ? "backward" : "forward");
  report.algorithm = "wavefront";
  if (target.device.is_cuda()) {
    const plan::GpuWavefront plan = plan_gpu_stack(stack, target, machine.gpu, backward);
    if (plan.chunk == 0) return {};
    report.machine = plan::describe(machine.gpu);
    report.plan =
        fmt::format("wavefront: chunks of {} steps, each layer on a branch: {}", plan.chunk, plan.plan.explain());
    report.microseconds = plan.microseconds;
  } else {
    const Index chunk = plan_cpu_stack(stack, target, machine.cpu, backward);
    if (chunk == 0) return {};
    report.plan = fmt::format(
        "wavefront: chunks of {} steps, each of one thread, while others run those of the layers next to it", chunk);
  }
  return {report};
}

/// Makes the op of a stack from the ops of its layers, in order.
template <class OpOfLayer>
Op stack_op(const RecurrenceStack& stack, std::string name, bool backward, const OpOfLayer& op_of_layer) {
  Op op;
  op.name = std::move(name);
  std::vector<Op> layers;
  for (std::size_t l = 0; l < stack.layers.size(); ++l) {
    layers.push_back(op_of_layer(l));
    op.products += layers.back().products;
  }
  if (backward) std::ranges::reverse(layers);
  op.explain = [stack, backward, layers = std::move(layers)](const Target& target, const plan::Machine& machine) {
    std::vector<PlanReport> reports = explain_wavefront(stack, target, machine, backward);
    if (!reports.empty() && target.device.is_cuda()) return reports;  // whose time is that of all layers
    for (const Op& layer : layers) std::ranges::move(layer.explain(target, machine), std::back_inserter(reports));
    return reports;
  };
  return op;
}

/// Returns the estimated time of all layers on one thread.
double stack_microseconds(const RecurrenceStack& stack, const Target& target, const plan::CpuCosts& costs) {
  double products = 0, units = 0;
  for (const Recurrence& layer : stack.layers) {
    const Index read = layer.hidden / layer.heads + layer.input;
    units += static_cast<double>(layer.hidden);
    products += static_cast<double>(plan::cell_traits(layer.cell).info.gates * layer.hidden * read);
  }
  return static_cast<double>(target.positions()) * (products / costs.multiply_adds + units / costs.gates);
}

}  // namespace

plan::GpuWavefront plan_gpu_stack(const RecurrenceStack& stack, const Target& target, const plan::GpuModel& gpu,
                                  bool backward) {
  const std::vector<Recurrence>& layers = stack.layers;
  const bool drops = target.has(CallFlag::training) && stack.dropout > 0;
  if (layers.front().restarts != Restarts::zeros) return {};
  if (target.execution.exact || layers.front().is_scan() || target.has(CallFlag::lengths) || target.packed > 0 || drops)
    return {};
  for (std::size_t l = 1; l < layers.size(); ++l) {
    if (!steps_follow(layers[l - 1], layers[l], target, backward)) return {};
  }
  return plan::gpu_wavefront(static_cast<Index>(layers.size()), dense_problem(layers.back(), backward, target), gpu);
}

// Scans have all steps to share among threads, and the products of a backward pass in bfloat16 run over all of them at
// once.
Index plan_cpu_stack(const RecurrenceStack& stack, const Target& target, const plan::CpuModel& machine, bool backward) {
  const std::vector<Recurrence>& layers = stack.layers;
  if (target.device.is_cuda() || layers.front().is_scan()) return 0;
  if (backward && target.execution.precision == Precision::bf16) return 0;
  return plan::wavefront_chunk({.layers = static_cast<Index>(layers.size()),
                                .rows = target.rows,
                                .steps = target.steps,
                                .threads = resolve_threads(target.execution.threads),
                                .microseconds = stack_microseconds(stack, target, machine.costs),
                                .layer_bytes = recurrent_bytes(layers.back(), target),
                                .backward = backward},
                               machine);
}

Op recurrence_stack_forward(const RecurrenceStack& stack) {
  Op op = stack_op(stack, stack.layers.front().cell + ".stack", false,
                   [&](std::size_t l) { return recurrence_forward(stack.layers[l]); });
  op.prepare = [stack](const Target& target) -> std::unique_ptr<Executable> {
    if (target.device.is_cuda()) {
      if (Prepared wavefront = cuda_stack_forward(stack, target)) return wavefront;
    } else if (const Index chunk = plan_cpu_stack(stack, target, cpu::machine(), false)) {
      return cpu_wavefront_forward(stack, target, chunk);
    }
    return std::make_unique<OneByOneForward>(stack, target);
  };
  return op;
}

Op recurrence_stack_backward(const RecurrenceStack& stack, bool wants_dx) {
  Op op = stack_op(stack, stack.layers.front().cell + ".stack.backward", true,
                   [&](std::size_t l) { return recurrence_backward(stack.layers[l], wants_dx || l > 0); });
  op.prepare = [stack, wants_dx](const Target& target) -> std::unique_ptr<Executable> {
    if (target.device.is_cuda()) {
      if (Prepared wavefront = cuda_stack_backward(stack, wants_dx, target)) return wavefront;
    } else if (const Index chunk = plan_cpu_stack(stack, target, cpu::machine(), true)) {
      return cpu_wavefront_backward(stack, target, chunk);
    }
    return std::make_unique<OneByOneBackward>(stack, wants_dx, target);
  };
  return op;
}

}  // namespace penstock::ops
