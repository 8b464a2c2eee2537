// Where a model had better run: the estimated time of all nodes of its graph, and of the copies around it.

#include "nn/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/cpu/machine.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/driver.h"
#include "base/check.h"
#include "base/threads.h"
#include "nn/model_impl.h"

namespace penstock {
namespace nn {
namespace {

double bytes_of(const graph::Value& value, const ops::Target& target) {
  return value.width < 0 ? 0.0 : static_cast<double>(value.count(target)) * static_cast<double>(size_of(value.dtype));
}

/// What a node reads and writes.
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
                 const plan::Machine& machine, const HostCosts& host) {
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
    const double rate = target.dtype == DType::f32 ? costs.tf32 : costs.halves;
    return host.recorded_launch + std::max(products / rate, bytes / costs.bytes);
  }
  const plan::CpuCosts& costs = machine.cpu.costs;
  const bool shared = products >= costs.product_grain;
  const double threads = shared ? static_cast<double>(resolve_threads(target.execution.threads)) : 1.0;
  return std::max(products / costs.multiply_adds, bytes / costs.bytes) / threads;
}

/// What a call brings to a GPU and takes from it: what it reads, and of a forward pass the outputs.
double copied_bytes(const graph::Graph& graph, const ops::Target& target, bool training, int& copies) {
  using graph::Home;
  constexpr std::array read = {Home::tokens, Home::features, Home::labels, Home::targets, Home::target_weights};
  double bytes = 0;
  for (const graph::Value& value : graph.values()) {
    const bool is_read = std::ranges::find(read, value.home) != read.end();
    if (value.part_of || (!is_read && (training || value.home != Home::outputs))) continue;
    bytes += bytes_of(value, target);
    ++copies;
  }
  return bytes;
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

}  // namespace

CallTime call_time(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                   const plan::Machine& machine, const HostCosts& costs) {
  const bool cuda = question.execution.device.is_cuda();
  if (cuda && question.execution.exact) {
    fail(ErrorCode::unsupported, "exact results are the CPU's, since a GPU's products depend on the batch");
  }
  if (!cuda && question.execution.precision == Precision::f16) {
    fail(ErrorCode::unsupported, "f16 is for GPUs: the CPU does not multiply halves");
  }
  ops::Target target = model_target(question.rows, question.steps, question.execution);
  target.training = question.training;
  target.step = !cuda && !question.training && question.rows == 1 && question.steps == 1;
  TrainingShape shape;
  shape.loss = data.task == Task::forecast ? ops::LossKind::mse : ops::LossKind::cross_entropy;
  const graph::Graph graph =
      question.training ? training_graph(spec, data, shape, target) : forward_graph(spec, data, target);
  CallTime time;
  for (const graph::Node& node : graph.nodes()) {
    // Weights of a model that is not trained are prepared once.
    if (node.phase == graph::Phase::weights && !question.training) continue;
    time.work += node_time(graph, node, target, machine, costs);
  }
  if (!cuda) return time;
  int copies = 0;
  const double bytes = copied_bytes(graph, target, question.training, copies);
  time.copies = (costs.copy * copies + bytes / costs.copied_bytes) / static_cast<double>(question.copied_every);
  time.start = question.start ? costs.start : 0;
  return time;
}

DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing, const HostCosts& costs) {
  require(std::min({question.rows, question.steps, question.calls, question.copied_every}) >= 1,
          "rows, steps, calls and copied_every must be at least 1, not {}, {}, {} and {}", question.rows,
          question.steps, question.calls, question.copied_every);
  DeviceChoice choice;
  if (!missing.empty()) {
    choice.why = "there is no GPU: " + missing;
    return choice;
  }
  DeviceQuestion asked = question;
  const auto time_on = [&](Device device, std::string& refusal) {
    asked.execution.device = device;
    try {
      return call_time(spec, data, asked, machine, costs);
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

}  // namespace nn

DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question) {
  plan::Machine machine{.cpu = cpu::machine(), .gpu = {}};
  std::string missing;
  if (!question.chip.empty()) {
    machine.gpu = plan::named_gpu(question.chip);
  } else {
    missing = cuda::driver_complaint();
    if (missing.empty()) machine.gpu = cuda::Device::get(question.execution.device.index).model();
  }
  return nn::choose_device(spec, data, question, machine, missing);
}

DeviceChoice choose_device(const Model& model, const DeviceQuestion& question) {
  return choose_device(model.impl().spec, model.impl().data, question);
}

}  // namespace penstock
