#include "backend/cuda/scan/step.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

#include "backend/cuda/kernels/scan/step_arguments.h"

constexpr Index kMaxRows = 8;  // of x for each reading of the weights: more sums than registers can hold with them
constexpr int kStepAccess = 16;

int step_alignment(const LayerSpec& spec, const LayerStep& call) {
  const Index size = plan::size_of(spec.storage);
  return common_alignment(kStepAccess, {static_cast<std::int64_t>(call.x | call.weights.weight), spec.input * size,
                                        call.rows > 1 ? call.x_stride * size : 0});
}

void check_call(const LayerSpec& spec, const LayerStep& call) {
  require(call.rows >= 1 && spec.input >= 1 && spec.hidden >= 1,
          "rows, input and hidden must be at least 1, not {}, {} and {}", call.rows, spec.input, spec.hidden);
  constexpr Index most = std::numeric_limits<int>::max() / 2;
  require(std::max({call.rows, spec.input, spec.hidden}) <= most, "rows, input and hidden must each be at most {}",
          most);
  require_address(call.x, "x");
  require_address(call.y, "y");
  require_address(call.state, "state");
  require_address(call.weights.weight, "weight");
  require_bias_of(spec);
  require((call.weights.bias != 0) == spec.bias, "bias must be {}", spec.bias ? "an address on the GPU" : "null");
  require(call.rows == 1 || (call.x_stride >= spec.input && call.y_stride >= spec.hidden),
          "the rows of x and y must be at least {} and {} elements apart, not {} and {}", spec.input, spec.hidden,
          call.x_stride, call.y_stride);
  const auto size = static_cast<DeviceAddress>(plan::size_of(spec.storage));
  require((call.x | call.y | call.weights.weight | call.weights.bias) % size == 0,
          "x, y, weight and bias must be aligned to their {} bytes a value", size);
}

/// Returns the number of warps of a block.
int step_warps(const plan::GpuModel& gpu) {
  constexpr double most = 32;
  return static_cast<int>(std::clamp(gpu.costs.step.warps, 1.0, most));
}

}  // namespace

KernelSource step_source(const LayerSpec& spec, Index rows, int alignment, int warps) {
  KernelSource source;
  source.entry = "Step";
  source.file = "backend/cuda/kernels/scan/step.cuh";
  const given::LayerStepPass pass = {
      .vector = static_cast<int>(std::max<Index>(1, alignment / plan::size_of(spec.storage))),
      .warps = warps,
      .rows = static_cast<int>(std::min(rows, kMaxRows))};
  source.constants = {{"using Storage", storage_type(spec.storage)}, pass_constant("LayerStepPass", pass)};
  source.rule = scan_rule(spec.cell).text;
  source.plan = fmt::format("one step: a warp a channel, {} values an access, {} rows at once", pass.vector, pass.rows);
  return source;
}

StepExecutable::StepExecutable(Device& device, const LayerSpec& spec, const LayerStep& call)
    : spec_(spec), rows_(call.rows) {
  check_call(spec, call);
  alignment_ = step_alignment(spec, call);
  warps_ = step_warps(device.model());
  kernel_ = &Kernel::load(device, step_source(spec, rows_, alignment_, warps_));
}

void StepExecutable::run(const LayerStep& call, StreamHandle stream) const {
  const Range range("penstock step");
  check_call(spec_, call);
  require(call.rows == rows_ && step_alignment(spec_, call) >= alignment_,
          "the call must have the {} rows that were prepared, and an alignment of {} bytes", rows_, alignment_);
  const Index size = plan::size_of(spec_.storage);
  StepArguments arguments{};
  arguments.x = device_pointer<const char>(call.x);
  arguments.weight = device_pointer<const char>(call.weights.weight);
  arguments.bias = device_pointer<const char>(call.weights.bias);
  const Index gates = plan::cell_traits(spec_.cell).gates();
  arguments.learnt = arguments.bias == nullptr ? nullptr : arguments.bias + gates * spec_.hidden * size;
  arguments.state = device_pointer<float>(call.state);
  arguments.y = device_pointer<char>(call.y);
  arguments.x_stride = call.x_stride * size;
  arguments.y_stride = call.y_stride * size;
  arguments.rows = static_cast<int>(call.rows);
  arguments.input = static_cast<int>(spec_.input);
  arguments.hidden = static_cast<int>(spec_.hidden);
  const auto blocks = static_cast<unsigned>((spec_.hidden + warps_ - 1) / warps_);
  kernel_->launch(blocks, static_cast<unsigned>(32 * warps_), arguments, stream);
}

}  // namespace penstock::cuda
