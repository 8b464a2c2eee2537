#include "ops/recurrence/explain.h"

#include "ops/cuda/common.h"
#include "ops/product/explain_product.h"
#include "ops/recurrence/cpu_layer.h"
#include "plan/cell_table.h"

namespace penstock::ops {
namespace {

/// Returns the alignment of the rows of a value that a program has placed; `bytes`: of a row.
int row_alignment(Index bytes) { return cuda::common_alignment(16, {bytes}); }

InputProducts products_of(const Recurrence& shape, const Target& target) {
  return {target.positions(),
          shape.input,
          plan::cell_traits(shape.cell).info.gates * shape.hidden,
          storage_of(target.dtype),
          shape.is_scan(),
          target.execution.exact,
          target.tf32()};
}

std::vector<PlanReport> dense_reports(const Recurrence& shape, bool backward, const Target& target,
                                      const plan::GpuModel& gpu) {
  const InputProducts products = products_of(shape, target);
  const PlanReport recurrence = plan::explain(dense_problem(shape, backward, target), gpu);
  if (shape.projected) return {recurrence};
  if (!backward) return {products.forward(gpu), recurrence};
  std::vector<PlanReport> reports = products.backward(true, gpu);
  reports.insert(reports.begin(), recurrence);
  return reports;
}

std::vector<PlanReport> scan_reports(const Recurrence& shape, bool backward, const Target& target,
                                     const plan::GpuModel& gpu) {
  const InputProducts products = products_of(shape, target);
  PlanReport layer = plan::explain(scan_problem(shape, backward, target), gpu);
  if (backward) {
    std::vector<PlanReport> reports = products.backward(true, gpu);
    reports.insert(reports.begin(), std::move(layer));
    return reports;
  }
  if (layer.algorithm == to_string(plan::ScanAlgorithm::fused) ||
      layer.algorithm == to_string(plan::ScanAlgorithm::epilogue))
    return {std::move(layer)};
  PlanReport product = products.forward(gpu);  // its time is part of the layer's
  product.work += " (counted with the layer)";
  product.microseconds = 0;
  return {std::move(product), std::move(layer)};
}

}  // namespace

void check_precision(const Execution& execution) {
  const bool of_gpus = execution.precision == Precision::f16 || execution.precision == Precision::tf32;
  if (execution.device.is_cuda() || !of_gpus) return;
  fail(ErrorCode::unsupported, "precision {} needs a GPU; CPUs support full, bf16-weights and bf16",
       to_string(execution.precision));
}

plan::Problem cpu_problem(const Recurrence& shape, const Target& target) {
  Execution execution = target.execution;
  if (target.has(CallFlag::step)) execution.threads = 1;
  return layer_problem(plan::cell_traits(shape.cell), shape.input, shape.hidden, shape.heads, target.rows, target.steps,
                       execution, shape.int8);
}

plan::GpuLayerProblem scan_problem(const Recurrence& shape, bool backward, const Target& target) {
  plan::GpuLayerProblem problem;
  plan::GpuScanProblem& scan = problem.scan;
  scan.storage = storage_of(target.dtype);
  scan.rows = target.rows, scan.steps = target.steps, scan.channels = shape.hidden;
  scan.backward = backward;
  scan.gates = scan.read_back = plan::cell_traits(shape.cell).gates();
  scan.computed = true;
  scan.alignment = row_alignment(shape.hidden * plan::size_of(scan.storage));
  scan.lengths = target.has(CallFlag::lengths) || target.packed > 0, scan.reset = target.has(CallFlag::reset);
  scan.restarts = shape.restarts != Restarts::zeros;
  scan.algorithm = scan_algorithm_of(target.execution, backward);
  problem.input = shape.input;
  problem.keep_gates = target.has(CallFlag::training);
  problem.tf32 = target.tf32();
  return problem;
}

plan::GpuDenseProblem dense_problem(const Recurrence& shape, bool backward, const Target& target) {
  plan::GpuDenseProblem problem;
  problem.cell = shape.cell;
  problem.storage = storage_of(target.dtype);
  problem.rows = target.rows, problem.steps = target.steps;
  problem.hidden = shape.hidden, problem.heads = shape.heads;
  problem.backward = backward;
  problem.training = target.has(CallFlag::training) && !backward;
  problem.ragged = target.has(CallFlag::lengths) || target.packed > 0, problem.sorted = target.has(CallFlag::sorted);
  problem.reset = target.has(CallFlag::reset), problem.reverse = shape.reverse;
  problem.restarts = shape.restarts != Restarts::zeros;
  problem.every_state = shape.every_state;
  problem.exact = target.execution.exact && !backward;
  problem.tf32 = target.tf32();
  problem.clipped = backward && shape.gradient_clip > 0;
  const Index size = plan::size_of(problem.storage);
  const SequenceStrides wx = shape.projected ? shape.x_strides : SequenceStrides{};
  problem.alignment =
      cuda::common_alignment(16, {shape.hidden / shape.heads * size, shape.alignment, wx.row * size, wx.step * size,
                                  shape.y_strides.row * size, shape.y_strides.step * size});
  return problem;
}

std::vector<PlanReport> explain_recurrence(const Recurrence& shape, bool backward, const Target& target,
                                           const plan::Machine& machine) {
  if (target.device.is_cuda()) {
    return shape.is_scan() ? scan_reports(shape, backward, target, machine.gpu)
                           : dense_reports(shape, backward, target, machine.gpu);
  }
  PlanReport report = plan::explain(cpu_problem(shape, target), machine.cpu);
  if (backward) {
    report.work += ", backward";
    report.microseconds *= 2;  // gradients of weights and of inputs are two products
    for (PlanAlternative& other : report.alternatives) other.microseconds *= 2;
  }
  if (target.has(CallFlag::step)) report.why = "one step of one row, over and over, takes no other thread";
  if (!backward && !reads_panels(shape, forward_panels(target), target)) {
    report.plan += "; weights are read as they lie, since to pack them would take longer than it saves";
  }
  return {std::move(report)};
}

}  // namespace penstock::ops
