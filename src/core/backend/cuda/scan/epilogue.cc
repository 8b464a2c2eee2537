#include "backend/cuda/scan/epilogue.h"

#include <algorithm>

#include "backend/cuda/driver/range.h"
#include "backend/cuda/driver/tensor_map.h"
#include "backend/cuda/product/warpgroup_multiply.h"
#include "backend/cuda/scan/scan_fill.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header
#include "backend/cuda/kernels/scan/epilogue_arguments.h"

constexpr unsigned kEpilogueThreads = 512;  // a warpgroup for the recurrence, two that multiply, one that copies
constexpr int kLineBytes = 128;             // of gates in shared memory
constexpr int kWidestProduct = 200;         // columns that one multiplication may have, as the kernel says

/// All blocks at once, as they wait for each other.
Launch launch_of(unsigned blocks) { return {.grid = blocks, .block = kEpilogueThreads, .cooperative = true}; }

/// An axis of so many elements so many bytes apart, or of one element, whose distance from nothing may be anything.
MapAxis axis(Index size, Index stride, int box) { return {size, size == 1 ? 16 : stride, box}; }

/// Rows and steps as the kernel counts them: packed rows lie in one.
struct RowsAndSteps {
  Index rows, steps;
  explicit RowsAndSteps(const ScanShape& shape) : rows(shape.cu_seqlens != 0 ? 1 : shape.rows), steps(shape.steps) {}
};

TensorMap map_of_x(const FusedForward& call, const plan::GpuScanPlan& plan) {
  const plan::Storage storage = call.scan.shape.storage;
  const Index size = plan::size_of(storage);
  const RowsAndSteps all(call.scan.shape);
  return tensor_map<3>(storage, call.x.data,
                       {MapAxis{.size = call.input, .box = plan.stage_inputs},
                        axis(all.steps, call.x.step_stride * size, static_cast<int>(plan.chunk())),
                        axis(all.rows, call.x.row_stride * size, 1)},
                       static_cast<int>(plan.stage_inputs * size));
}

TensorMap map_of_weight(const FusedForward& call, const plan::GpuScanPlan& plan) {
  const ScanShape& shape = call.scan.shape;
  const Index size = plan::size_of(shape.storage), row = call.input * size;
  return tensor_map<3>(
      shape.storage, call.weight,
      {MapAxis{.size = call.input, .box = plan.stage_inputs}, axis(shape.channels, row, plan.tile_channels()),
       axis(shape.rule.gates, shape.channels * row, 1)},
      static_cast<int>(plan.stage_inputs * size));
}

TensorMap map_of_gates(const FusedForward& call, const plan::GpuScanPlan& plan) {
  const ScanShape& shape = call.scan.shape;
  const Index size = plan::size_of(shape.storage);
  const RowsAndSteps all(shape);
  const DeviceSequence& gates = call.scan.terms[0];  // the others follow it, channels behind channels
  return tensor_map<4>(shape.storage, gates.data,
                       {MapAxis{.size = shape.channels, .box = static_cast<int>(kLineBytes / size)},
                        axis(shape.rule.gates, shape.channels * size, 1),
                        axis(all.steps, gates.step_stride * size, static_cast<int>(plan.chunk())),
                        axis(all.rows, gates.row_stride * size, 1)},
                       kLineBytes);
}

}  // namespace

KernelSource epilogue_source(const ScanRule& rule, const plan::GpuLayerProblem& problem,
                             const plan::GpuScanPlan& plan) {
  const int columns = rule.gates * plan.tile_channels();
  const int products = (columns + kWidestProduct - 1) / kWidestProduct;
  KernelSource source =
      layer_source(rule, problem, plan, {.stage_inputs = plan.stage_inputs, .depth = plan.depth, .products = products});
  source.entry = "EpilogueForward";
  source.file = "backend/cuda/kernels/scan/epilogue_forward.cuh";
  source.functions = warpgroup_multiply_halves(columns / products, problem.scan.storage);
  return source;
}

EpilogueExecutable::EpilogueExecutable(Device& device, const FusedForward& call, const plan::GpuScanPlan& plan)
    : rule_(call.scan.shape.rule.text), problem_(problem_of(call)), plan_(plan) {
  require(plan.algorithm == plan::ScanAlgorithm::epilogue, "the plan must be of the epilogue algorithm, not {}",
          to_string(plan.algorithm));
  kernel_ = &Kernel::load(device, epilogue_source(call.scan.shape.rule, problem_, plan_));
  blocks_ = static_cast<unsigned>(kernel_->resident(launch_of(1)) * device.model().multiprocessors);
  if (blocks_ == 0) {
    fail(ErrorCode::unsupported, "{} runs no block with {} KB of shared memory", device.model().name,
         plan_.shared / 1024);
  }
}

void EpilogueExecutable::run(const FusedForward& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range("penstock layer forward, epilogue");
  const plan::GpuLayerProblem problem = problem_of(call);
  const plan::GpuScanProblem &scan = problem.scan, &prepared = problem_.scan;
  require(call.scan.shape.rule.text == rule_ && scan.storage == prepared.storage && scan.lengths == prepared.lengths &&
              scan.reset == prepared.reset && scan.restarts == prepared.restarts &&
              scan.alignment >= prepared.alignment && scan.channels == prepared.channels &&
              scan.rows <= prepared.rows && scan.steps <= prepared.steps && problem.input == problem_.input &&
              problem.keep_gates == problem_.keep_gates && problem.input_alignment >= problem_.input_alignment,
          "the call must have the form that was prepared: rule, storage, lengths, resets, channels and inputs, "
          "gates kept or not, alignments of {} bytes of x and of the rest, and at most {} rows of {} steps",
          problem_.input_alignment, prepared.rows, prepared.steps);
  EpilogueArguments arguments{};
  arguments.x = map_of_x(call, plan_);
  arguments.weight = map_of_weight(call, plan_);
  if (problem.keep_gates) arguments.gates = map_of_gates(call, plan_);
  arguments.scan = arguments_of_shape(call.scan.shape, plan_, workspace);
  arguments.scan.out[0] = tensor_of(call.scan.y, plan::size_of(scan.storage));
  arguments.scan.state_in = device_pointer<const float>(call.scan.state_in);
  arguments.scan.state_out = device_pointer<float>(call.scan.state_out);
  arguments.scan.descending = call.scan.shape.reverse ? 1 : 0;
  arguments.scan.tiles = static_cast<unsigned>(arguments.scan.chains * plan_.chunks(scan.steps));
  arguments.bias = device_pointer<const char>(call.bias);
  arguments.input_stages = static_cast<int>((problem.input + plan_.stage_inputs - 1) / plan_.stage_inputs);
  kernel_->launch(launch_of(std::min(arguments.scan.tiles, blocks_)), arguments, stream);
}

}  // namespace penstock::cuda
