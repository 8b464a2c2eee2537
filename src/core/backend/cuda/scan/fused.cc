#include "backend/cuda/scan/fused.h"

#include <algorithm>

#include "backend/cuda/driver/range.h"
#include "backend/cuda/scan/scan_fill.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header
#include "backend/cuda/kernels/scan/fused_arguments.h"

int x_alignment_of(const FusedForward& call) {
  const Index size = plan::size_of(call.scan.shape.storage);
  return common_alignment(16, {static_cast<std::int64_t>(call.x.data), call.x.row_stride * size,
                               call.x.step_stride * size, call.input * size});
}

bool keeps_gates(const FusedForward& call) { return call.scan.terms[0].data != 0; }

}  // namespace

plan::GpuLayerProblem problem_of(const FusedForward& call) {
  ScanForward checked = call.scan;
  if (!keeps_gates(call)) checked.terms.fill(call.scan.y);  // what is not there cannot be wrong
  plan::GpuLayerProblem problem;
  problem.scan = problem_of(checked);
  const Index size = plan::size_of(call.scan.shape.storage);
  problem.scan.alignment =
      std::min(problem.scan.alignment,
               common_alignment(16, {static_cast<std::int64_t>(call.bias), call.scan.shape.channels * size}));
  problem.input = call.input;
  problem.input_alignment =
      std::min(x_alignment_of(call), common_alignment(16, {static_cast<std::int64_t>(call.weight)}));
  problem.keep_gates = keeps_gates(call);
  return problem;
}

KernelSource layer_source(const ScanRule& rule, const plan::GpuLayerProblem& problem, const plan::GpuScanPlan& plan,
                          given::LayerPass pass) {
  pass.tile = scan_tile(problem.scan, plan);
  pass.keep_gates = problem.keep_gates;
  pass.shared_bytes = static_cast<int>(plan.shared);
  KernelSource source;
  source.constants = {{"using Storage", storage_type(problem.scan.storage)}, pass_constant("LayerPass", pass)};
  source.rule = rule.text;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

KernelSource fused_source(const ScanRule& rule, const plan::GpuLayerProblem& problem, const plan::GpuScanPlan& plan,
                          int x_alignment) {
  KernelSource source = layer_source(
      rule, problem, plan, {.piece = x_alignment, .blocks = plan.blocks, .input = static_cast<int>(problem.input)});
  source.entry = "FusedForward";
  source.file = "backend/cuda/kernels/scan/fused_forward.cuh";
  return source;
}

FusedExecutable::FusedExecutable(Device& device, const FusedForward& call, const plan::GpuScanPlan& plan)
    : rule_(call.scan.shape.rule.text), problem_(problem_of(call)), plan_(plan), x_alignment_(x_alignment_of(call)) {
  require(plan.algorithm == plan::ScanAlgorithm::fused, "the plan must be of the fused algorithm, not {}",
          to_string(plan.algorithm));
  kernel_ = &Kernel::load(device, fused_source(call.scan.shape.rule, problem_, plan_, x_alignment_));
}

void FusedExecutable::run(const FusedForward& call, StreamHandle stream) const {
  const Range range("penstock layer forward, fused");
  const plan::GpuLayerProblem problem = problem_of(call);
  const plan::GpuScanProblem& scan = problem.scan;
  require(call.scan.shape.rule.text == rule_ && scan.storage == problem_.scan.storage &&
              scan.lengths == problem_.scan.lengths && scan.reset == problem_.scan.reset &&
              scan.restarts == problem_.scan.restarts && scan.alignment >= problem_.scan.alignment &&
              scan.channels == problem_.scan.channels && problem.input == problem_.input &&
              problem.keep_gates == problem_.keep_gates && x_alignment_of(call) >= x_alignment_,
          "the call must have the form that was prepared: rule, storage, lengths, resets, channels and inputs, gates "
          "kept or not, and alignments of {} bytes of x and {} of the rest",
          x_alignment_, problem_.scan.alignment);
  FusedArguments arguments{};
  const Index bytes = plan::size_of(scan.storage);
  arguments.scan = arguments_of_shape(call.scan.shape, plan_, 0);
  set_all(arguments.scan.in, call.scan.terms, call.scan.shape.rule.gates, bytes);
  arguments.scan.out[0] = tensor_of(call.scan.y, bytes);
  arguments.scan.state_in = device_pointer<const float>(call.scan.state_in);
  arguments.scan.state_out = device_pointer<float>(call.scan.state_out);
  arguments.scan.descending = call.scan.shape.reverse ? 1 : 0;
  arguments.x = tensor_of(call.x, bytes);
  arguments.weight = device_pointer<const char>(call.weight);
  arguments.bias = device_pointer<const char>(call.bias);
  kernel_->launch(static_cast<unsigned>(arguments.scan.chains), static_cast<unsigned>(plan_.threads()), arguments,
                  stream);
}

}  // namespace penstock::cuda
