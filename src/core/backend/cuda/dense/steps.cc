#include "backend/cuda/dense/steps.h"

#include <algorithm>

#include "backend/cuda/dense/source.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

namespace {

ProductShape step_product(const plan::GpuDenseProblem& problem, Index count) {
  const Index D = problem.head_size(), gates = plan::cell_traits(problem.cell).gates();
  ProductShape shape{.storage = problem.storage, .result = plan::Storage::f32, .tf32 = problem.tf32};
  shape.m = problem.rows;
  shape.exact = problem.exact;
  shape.b_transposed = !problem.backward;
  shape.b_stride = D;
  if (problem.backward) {
    shape.n = D, shape.k = count * D;
    shape.a_stride = gates * problem.hidden, shape.d_stride = problem.hidden;
  } else {
    shape.n = count * D, shape.k = D;
    shape.a_stride = problem.hidden, shape.d_stride = gates * problem.hidden;
  }
  return shape;
}

std::vector<HeadProducts> products_of_phases(Device& device, const plan::GpuDenseProblem& problem) {
  const plan::CellTraits& cell = plan::cell_traits(problem.cell);
  const Index first = cell.first_gates, gates = cell.gates();
  std::vector<HeadProducts> phases;
  phases.emplace_back(device, problem, 0, first);
  if (first < gates) phases.emplace_back(device, problem, first, gates - first);
  return phases;
}

std::size_t most_workspace(const std::vector<HeadProducts>& phases) {
  std::size_t most = 0;
  for (const HeadProducts& phase : phases) most = std::max(most, phase.workspace_bytes());
  return padded(most);
}

std::size_t bytes_of(Index values, Index size) { return padded(static_cast<std::size_t>(values * size)); }

}  // namespace

KernelSource dense_step_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const given::StepPass pass = {.all = dense_pass(problem),
                                .head = static_cast<int>(problem.head_size()),
                                .threads = plan.threads(),
                                .means = plan::cell_traits(problem.cell).averages};
  return pass_source(problem, plan, "step", pass_constant("StepPass", pass));
}

HeadProducts::HeadProducts(Device& device, const plan::GpuDenseProblem& problem, Index first, Index count)
    : heads_(problem.heads) {
  const Index D = problem.head_size(), gates = plan::cell_traits(problem.cell).gates();
  const Index size = plan::size_of(problem.storage);
  const Distance of_gates{first * D, gates * D}, of_units{0, D};
  const auto in_bytes = [](const Distance& values, Index bytes) {
    return Distance{values.first * bytes, values.apart * bytes};
  };
  factor_ = in_bytes(problem.backward ? of_gates : of_units, size);
  recurrent_ = in_bytes(of_gates, D * size);
  result_ = in_bytes(problem.backward ? of_units : of_gates, 4);
  const auto alignment_of = [](const Distance& distance) {
    return common_alignment(16, {distance.first, distance.apart});
  };
  ProductShape shape = step_product(problem, count);
  shape.a_alignment = alignment_of(factor_);
  shape.b_alignment = common_alignment(problem.alignment, {recurrent_.first, recurrent_.apart});
  shape.d_alignment = alignment_of(result_);
  product_ = MatrixProduct(device, shape);
}

void HeadProducts::run(DeviceAddress factor, DeviceAddress recurrent, DeviceAddress result, DeviceAddress workspace,
                       StreamHandle stream) const {
  for (Index head = 0; head < heads_; ++head) {
    product_.run(factor_.from(factor, head), recurrent_.from(recurrent, head), result_.from(result, head), 0, workspace,
                 stream);
  }
}

StepForward::StepForward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : problem_(problem),
      launch_(dense_launch(plan)),
      kernel_(&Kernel::load(device, dense_step_source(problem, plan))),
      phases_(products_of_phases(device, problem)) {}

StepForward::Places StepForward::places() const {
  const plan::CellTraits& cell = plan::cell_traits(problem_.cell);
  const Index values = problem_.rows * problem_.hidden;
  Places at{};
  at.state = at.products + bytes_of(values * cell.gates(), 4);
  at.operand = at.state + bytes_of(values * cell.states(), 4);
  at.multiply = at.operand + bytes_of(values, plan::size_of(problem_.storage));
  at.end = at.multiply + most_workspace(phases_);
  return at;
}

void StepForward::run(const DenseForwardArguments& call, Index steps, DeviceAddress workspace,
                      StreamHandle stream) const {
  const Places at = places();
  DenseStepForwardArguments arguments{};
  arguments.call = call;
  float* const state = device_pointer<float>(workspace + at.state);
  char* const operand = device_pointer<char>(workspace + at.operand);
  const auto apply = [&](Index step, std::size_t phase) {
    arguments.step = static_cast<int>(step), arguments.phase = static_cast<int>(phase);
    kernel_->launch(launch_, arguments, stream);
  };
  const auto recurrent = reinterpret_cast<DeviceAddress>(call.recurrent);
  const auto state_in = reinterpret_cast<DeviceAddress>(call.state_in);
  const bool from_zeros = state_in == 0 && phases_.size() == 1;  // then the first product is zeros
  const bool reads_state = problem_.storage == plan::Storage::f32 && state_in != 0 && state_in % 16 == 0;
  arguments.before = call.state_in;
  arguments.operand = operand;
  if (!from_zeros && !reads_state) apply(kBeforeFirstStep, 0);
  for (Index step = 0; step < steps; ++step) {
    const bool last = step + 1 == steps;
    arguments.before = step == 0 ? call.state_in : state;
    arguments.after = last && call.state_out != nullptr ? call.state_out : state;
    for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
      const bool first = step == 0 && phase == 0;
      if (last && phase + 1 == phases_.size()) arguments.operand = nullptr;
      arguments.products = first && from_zeros ? nullptr : device_pointer<const float>(workspace + at.products);
      if (arguments.products != nullptr) {
        const DeviceAddress factor = first && reads_state ? state_in : workspace + at.operand;
        phases_[phase].run(factor, recurrent, workspace + at.products, workspace + at.multiply, stream);
      }
      apply(step, phase);
    }
  }
}

StepBackward::StepBackward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : problem_(problem),
      launch_(dense_launch(plan)),
      kernel_(&Kernel::load(device, dense_step_source(problem, plan))),
      phases_(products_of_phases(device, problem)) {}

StepBackward::Places StepBackward::places() const {
  const plan::CellTraits& cell = plan::cell_traits(problem_.cell);
  const Index values = problem_.rows * problem_.hidden;
  Places at{};
  at.doperand = at.through + bytes_of(values, 4);
  at.carry = at.doperand + (cell.phases == 2 ? bytes_of(values, 4) : 0);
  at.gates = at.carry + bytes_of(values * cell.states(), 4);
  at.multiply = at.gates + bytes_of(values * cell.gates(), plan::size_of(problem_.storage));
  at.end = at.multiply + most_workspace(phases_);
  return at;
}

void StepBackward::run(const DenseBackwardArguments& call, Index steps, DeviceAddress workspace,
                       StreamHandle stream) const {
  const Places at = places();
  DenseStepBackwardArguments arguments{};
  arguments.call = call;
  arguments.through = device_pointer<const float>(workspace + at.through);
  arguments.doperand = device_pointer<const float>(workspace + at.doperand);
  arguments.carry = device_pointer<float>(workspace + at.carry);
  arguments.gates = device_pointer<char>(workspace + at.gates);
  const auto apply = [&](Index step, int phase) {
    arguments.step = static_cast<int>(step), arguments.phase = phase;
    kernel_->launch(launch_, arguments, stream);
  };
  const auto recurrent = reinterpret_cast<DeviceAddress>(call.recurrent);
  const auto multiply = [&](std::size_t phase, std::size_t result) {
    phases_[phase].run(workspace + at.gates, recurrent, workspace + result, workspace + at.multiply, stream);
  };
  for (Index step = steps - 1; step >= 0; --step) {
    arguments.is_first = step == steps - 1 ? 1 : 0;
    apply(step, 0);
    if (phases_.size() == 2) {
      multiply(1, at.doperand);
      apply(step, 1);
    }
    multiply(0, at.through);
  }
  arguments.is_first = 0;
  if (call.dstate_in != nullptr) apply(kBeforeFirstStep, 0);
}

}  // namespace penstock::cuda
