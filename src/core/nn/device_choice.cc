// Where a model or a recurrent stack had better run: the estimated time of all nodes of its graphs, and of the copies
// around them.

#include "nn/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "backend/cpu/machine.h"
#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "base/check.h"
#include "base/threads.h"
#include "nn/layer/recurrent_graph.h"
#include "nn/model/model_impl.h"
#include "ops/recurrence/explain.h"
#include "plan/cpu/pays_for_team.h"

namespace penstock {
namespace nn {
namespace {

double bytes_of(const graph::Value& value, const ops::Target& target) {
  return value.width < 0 ? 0.0 : static_cast<double>(value.count(target)) * static_cast<double>(size_of(value.dtype));
}

/// Returns the bytes that a node reads and writes.
double traffic(const graph::Graph& graph, const graph::Node& node, const ops::Target& target) {
  double bytes = 0;
  for (const auto* const values : {&node.reads, &node.writes}) {
    for (const graph::ValueId id : *values) {
      if (id) bytes += bytes_of(graph.value(id), target);
    }
  }
  return bytes;
}

/// The planner's estimate where there is a plan; otherwise what its products or its memory take, whichever is longer.
double node_time(const graph::Graph& graph, const graph::Node& node, const ops::Target& target,
                 const plan::Machine& machine) {
  double planned = 0;
  if (node.op.explain) {
    for (const PlanReport& report : node.op.explain(target, machine)) {
      if (report.algorithm.empty() && !report.alternatives.empty()) fail(ErrorCode::unsupported, "{}", report.why);
      planned += report.microseconds;
    }
  }
  if (planned > 0) return planned;
  const double products = node.op.products * static_cast<double>(target.positions());
  const double bytes = traffic(graph, node, target);
  if (target.device.is_cuda()) {
    const plan::GpuCosts& costs = machine.gpu.costs;
    const double rate = target.dtype == DType::f32 ? costs.common.tf32 : costs.common.halves;
    return costs.host.recorded_launch + std::max(products / rate, bytes / costs.common.bytes);
  }
  const plan::CpuCosts& costs = machine.cpu.costs;
  const bool shared = plan::pays_for_team(products / costs.multiply_adds);
  const double threads = shared ? static_cast<double>(resolve_threads(target.execution.threads)) : 1.0;
  return std::max(products / costs.multiply_adds, bytes / costs.bytes) / threads;
}

/// Work of a call on one device, and its copies from the host and back if that is a GPU.
struct CallWork {
  ops::Target target;
  std::vector<graph::Graph> graphs;
  int copies = 0;
  double copied_bytes = 0;

  void copy(double bytes) {
    ++copies;
    copied_bytes += bytes;
  }
};

/// Work on a device, by its execution. Throws Error(unsupported) with the reason if the device cannot do it.
using WorkOn = std::function<CallWork(const Execution&)>;

/// Estimated time of a call on one device, in microseconds.
struct CallTime {
  double work = 0;    // all nodes of its graphs
  double copies = 0;  // from the host's memory and back
  double start = 0;   // once, before the first call

  double of(Index calls) const { return start + static_cast<double>(calls) * (work + copies); }
};

/// Bits differ between devices, and a choice by the size of a batch would make them depend on it.
void refuse_exact_on_gpu(const Execution& execution) {
  if (!execution.device.is_cuda() || !execution.exact) return;
  fail(ErrorCode::unsupported, "exact results differ between devices, and auto takes those of the CPU");
}

CallWork work_of(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                 const Execution& execution) {
  refuse_exact_on_gpu(execution);
  ops::check_precision(execution);
  CallWork work{.target = model_target(question.rows, question.steps, execution), .graphs = {}};
  ops::Target& target = work.target;
  target.flags.set(CallFlag::training, question.training);
  const bool step = !execution.device.is_cuda() && !question.training && question.rows == 1 && question.steps == 1;
  target.flags.set(CallFlag::step, step);
  TrainingShape shape;
  shape.loss = data.task == Task::forecast ? LossKind::mse : LossKind::cross_entropy;
  work.graphs.push_back(question.training ? training_graph(spec, data, shape, target)
                                          : forward_graph(spec, data, target));
  // Copies: inputs, and for a forward pass the outputs.
  using graph::Home;
  constexpr std::array read = {Home::tokens, Home::features, Home::labels, Home::targets, Home::target_weights};
  for (const graph::Value& value : work.graphs.front().values()) {
    const bool is_read = std::ranges::find(read, value.home) != read.end();
    if (value.part_of || (!is_read && (question.training || value.home != Home::outputs))) continue;
    work.copy(bytes_of(value, target));
  }
  return work;
}

CallWork work_of(const RecurrentSpec& spec, const DeviceQuestion& question, const Execution& execution) {
  check_spec(spec);
  const RecurrentForm form{.dtype = DType::f32,
                           .weights = DType::f32,
                           .rows = question.rows,
                           .steps = question.steps,
                           .flags = CallFlags().set(CallFlag::training, question.training)};
  check_form(spec, form, execution);
  refuse_exact_on_gpu(execution);
  CallWork work{.target = stack_target(form, execution), .graphs = pass_graphs(spec, form, execution)};
  const double states =
      static_cast<double>(find_cell(spec.cell).states * spec.layers * spec.directions() * spec.hidden_size);
  // x and the state go there, y and the state come back; and so do their gradients, the other way.
  const auto rows = static_cast<double>(question.rows), steps = static_cast<double>(question.steps);
  for (int pass = 0; pass < (question.training ? 2 : 1); ++pass) {
    for (const Index channels : {spec.input_size, spec.output_size()}) {
      work.copy(rows * steps * static_cast<double>(channels) * sizeof(float));
      work.copy(rows * states * sizeof(float));
    }
  }
  return work;
}

CallTime time_of(const CallWork& work, const DeviceQuestion& question, const plan::Machine& machine) {
  CallTime time;
  for (const graph::Graph& graph : work.graphs) {
    for (const graph::Node& node : graph.nodes()) {
      // Weights that are not trained are prepared once.
      if (node.phase == graph::Phase::weights && !question.training) continue;
      time.work += node_time(graph, node, work.target, machine);
    }
  }
  if (!work.target.device.is_cuda()) return time;
  const plan::GpuCosts& costs = machine.gpu.costs;
  time.copies = (costs.host.copy * work.copies + work.copied_bytes / costs.host.bytes) /
                static_cast<double>(question.copied_every);
  time.start = question.start ? costs.host.start : 0;
  return time;
}

std::string time_text(double microseconds) {
  if (microseconds < 1e3) return fmt::format("{:.3g} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.3g} ms", microseconds / 1e3);
  return microseconds < 120e6 ? fmt::format("{:.3g} s", microseconds / 1e6)
                              : fmt::format("{:.3g} min", microseconds / 60e6);
}

std::string work_text(const DeviceQuestion& question) {
  const std::string shape = fmt::format("{} x {}", question.rows, question.steps);
  if (question.training) {
    return question.calls == 1 ? "a step of " + shape : fmt::format("{} steps of {}", question.calls, shape);
  }
  return question.calls == 1 ? shape : fmt::format("{} times {}", question.calls, shape);
}

DeviceChoice choose(const WorkOn& work_on, const DeviceQuestion& question, const plan::Machine& machine,
                    const std::string& missing) {
  require(std::min({question.rows, question.steps, question.calls, question.copied_every}) >= 1,
          "rows, steps, calls and copied_every must be at least 1, not {}, {}, {} and {}", question.rows,
          question.steps, question.calls, question.copied_every);
  DeviceChoice choice;
  if (!missing.empty()) {
    choice.why = "there is no GPU: " + missing;
    return choice;
  }
  const auto time_on = [&](Device device, std::string& refusal) {
    Execution execution = question.execution;
    execution.device = device;
    try {
      return time_of(work_on(execution), question, machine);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      refusal = error.what();
      return CallTime{};
    }
  };
  const Device gpu = Device::cuda(question.execution.device.index);
  std::string cpu_refusal, gpu_refusal;
  const CallTime on_cpu = time_on(Device::cpu(), cpu_refusal), on_gpu = time_on(gpu, gpu_refusal);
  if (!cpu_refusal.empty() && !gpu_refusal.empty()) {
    fail(ErrorCode::unsupported, "neither device can: {}; {}", cpu_refusal, gpu_refusal);
  }
  choice.cpu_microseconds = on_cpu.of(question.calls);
  choice.gpu_microseconds = on_gpu.of(question.calls);
  choice.copy_microseconds = static_cast<double>(question.calls) * on_gpu.copies;
  if (!gpu_refusal.empty()) {
    choice.why = gpu_refusal;
    return choice;
  }
  if (!cpu_refusal.empty()) {
    choice.device = gpu;
    choice.why = cpu_refusal;
    return choice;
  }
  if (choice.gpu_microseconds < choice.cpu_microseconds) choice.device = gpu;
  std::string beside = fmt::format("{} of them to copy", time_text(choice.copy_microseconds));
  if (on_gpu.start > 0) beside += fmt::format(", {} to start", time_text(on_gpu.start));
  choice.why =
      fmt::format("{}: by estimate {} on {} ({}), {} on the CPU", work_text(question),
                  time_text(choice.gpu_microseconds), machine.gpu.name, beside, time_text(choice.cpu_microseconds));
  return choice;
}

}  // namespace

DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing) {
  const auto work_on = [&](const Execution& execution) { return work_of(spec, data, question, execution); };
  return choose(work_on, question, machine, missing);
}

DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question, const plan::Machine& machine,
                           const std::string& missing) {
  const auto work_on = [&](const Execution& execution) { return work_of(spec, question, execution); };
  return choose(work_on, question, machine, missing);
}

namespace {

/// The machine that a question is about, and why it has no GPU.
plan::Machine machine_of_question(const DeviceQuestion& question, std::string& missing) {
  plan::Machine machine{.cpu = cpu::machine(), .gpu = {}};
  if (!question.chip.empty()) {
    machine.gpu = plan::named_gpu(question.chip);
    return machine;
  }
  missing = cuda::driver_complaint();
  if (!missing.empty()) return machine;
  try {
    machine.gpu = cuda::Device::get(question.execution.device.index).model();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    missing = error.what();  // a GPU that is too old
  }
  return machine;
}

}  // namespace

}  // namespace nn

DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question) {
  std::string missing;
  const plan::Machine machine = nn::machine_of_question(question, missing);
  return nn::choose_device(spec, data, question, machine, missing);
}

DeviceChoice choose_device(const Model& model, const DeviceQuestion& question) {
  return choose_device(model.impl().spec, model.impl().data, question);
}

DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question) {
  std::string missing;
  const plan::Machine machine = nn::machine_of_question(question, missing);
  return nn::choose_device(spec, question, machine, missing);
}

}  // namespace penstock
