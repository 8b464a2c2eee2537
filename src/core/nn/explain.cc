// How layers and models will run, and why.

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/machine.h"
#include "backend/cuda/driver/device.h"
#include "base/check.h"
#include "nn/device_choice.h"
#include "nn/explain.h"
#include "nn/model/model_impl.h"
#include "ops/recurrence/explain.h"
#include "penstock/model.h"

namespace penstock {
namespace {

constexpr const char* nothing_to_choose = "nothing to choose";  // in nodes with one way to run

/// The machine that is asked about, and the device on it.
plan::Machine machine_asked(Execution& execution, const std::string& chip) {
  if (chip.empty()) {
    ops::check_precision(execution);
    return nn::machine_of(execution);
  }
  if (!execution.device.is_cuda()) execution.device = Device::cuda(0);
  return {.cpu = cpu::machine(), .gpu = plan::named_gpu(chip)};
}

void append(std::vector<PlanReport>& all, std::vector<PlanReport> more) {
  for (PlanReport& report : more) all.push_back(std::move(report));
}

std::string time_text(double microseconds) {
  if (microseconds <= 0) return "";
  return microseconds < 1000 ? fmt::format("{:.1f} us", microseconds) : fmt::format("{:.2f} ms", microseconds / 1000);
}

std::string alternative_text(const PlanAlternative& other) {
  const std::string time = time_text(other.microseconds);
  std::string text = fmt::format("  not {}{}: {}\n", other.name, time.empty() ? "" : " (" + time + ")", other.reason);
  if (other.reason.find(other.conflict.empty() ? "" : other.conflict.front()) != std::string::npos) return text;
  for (const std::string& constraint : other.conflict) text += fmt::format("    cannot hold: {}\n", constraint);
  return text;
}

}  // namespace

namespace nn {

std::vector<PlanReport> explain_nodes(const graph::Graph& graph, const ops::Target& target,
                                      const plan::Machine& machine) {
  std::vector<PlanReport> all;
  for (const graph::Node& node : graph.nodes()) {
    const std::string writes =
        node.writes.empty() || !node.writes.front() ? node.op.name : graph.value(node.writes.front()).name;
    std::vector<PlanReport> reports;
    if (node.op.explain) reports = node.op.explain(target, machine);
    if (reports.empty()) {
      PlanReport report;
      report.work = node.op.name;
      report.why = nothing_to_choose;
      reports.push_back(std::move(report));
    }
    for (PlanReport& report : reports) report.work = fmt::format("{} ({})", report.work, writes);
    append(all, std::move(reports));
  }
  return all;
}

plan::Machine machine_of(const Execution& execution) {
  plan::Machine machine{.cpu = cpu::machine(), .gpu = {}};
  if (execution.device.is_cuda()) machine.gpu = cuda::Device::get(execution.device.index).model();
  return machine;
}

}  // namespace nn

std::vector<std::string> chips() {
  std::vector<std::string> names;
  for (const plan::GpuModel& gpu : plan::known_gpus()) names.push_back(gpu.name);
  return names;
}

std::vector<PlanReport> explain(const LayerQuestion& question) {
  find_cell(question.cell);
  constexpr Index most = Index{1} << 20;
  require(question.rows >= 1 && question.steps >= 1, "rows and steps must be at least 1, not {} and {}", question.rows,
          question.steps);
  require(std::min(question.input, question.hidden) >= 1 && std::max(question.input, question.hidden) <= most,
          "input and hidden must be 1 to {}, not {} and {}", most, question.input, question.hidden);
  require_about(question.heads >= 1 && question.hidden % question.heads == 0, "heads", " ({}) must divide hidden ({})",
                question.heads, question.hidden);
  Execution execution = question.execution;
  const plan::Machine machine = machine_asked(execution, question.chip);
  ops::Target target = model_target(question.rows, question.steps, execution);
  target.flags.set(CallFlag::lengths, question.lengths), target.flags.set(CallFlag::reset, question.reset),
      target.flags.set(CallFlag::training, question.training);
  const ops::Recurrence shape{
      .cell = question.cell, .input = question.input, .hidden = question.hidden, .heads = question.heads};
  std::vector<PlanReport> reports = ops::explain_recurrence(shape, false, target, machine);
  if (question.training) append(reports, ops::explain_recurrence(shape, true, target, machine));
  return reports;
}

std::vector<PlanReport> explain(const Model& model, Index rows, Index steps, bool training, const Execution& execution,
                                const std::string& chip) {
  require(rows >= 1 && steps >= 1, "rows and steps must be at least 1, not {} and {}", rows, steps);
  Execution planned = execution;
  const plan::Machine machine = machine_asked(planned, chip);
  ops::Target target = model_target(rows, steps, planned);
  target.flags.set(CallFlag::training, training);
  const ModelSpec& spec = model.impl().spec;
  const DataDescription& data = model.impl().data;
  if (!training) return nn::explain_nodes(nn::forward_graph(spec, data, target), target, machine);
  nn::TrainingShape shape;
  shape.loss = data.task == Task::forecast ? LossKind::mse : LossKind::cross_entropy;
  return nn::explain_nodes(nn::training_graph(spec, data, shape, target), target, machine);
}

std::string to_text(const std::vector<PlanReport>& reports) {
  std::string text, without_choice;
  double total = 0;
  for (const PlanReport& report : reports) {
    if (report.why == nothing_to_choose) {
      without_choice += (without_choice.empty() ? "" : ", ") + report.work;
      continue;
    }
    const std::string time = time_text(report.microseconds);
    text += report.work + "\n";
    if (!report.plan.empty()) text += fmt::format("  {}{}\n", report.plan, time.empty() ? "" : ", about " + time);
    if (report.plan.empty()) text += fmt::format("  {}\n", report.why);
    for (const PlanAlternative& other : report.alternatives) text += alternative_text(other);
    total += report.microseconds;
  }
  if (total > 0) text += fmt::format("total: about {}\n", time_text(total));
  if (!without_choice.empty()) text += fmt::format("{}: {}\n", nothing_to_choose, without_choice);
  return text;
}

}  // namespace penstock
