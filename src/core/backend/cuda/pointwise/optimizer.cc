#include "backend/cuda/pointwise/optimizer.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

constexpr Index kPart = 16384;  // values that a block sums up: fixed, and with it the order of sums
constexpr Index kRange = 8192;  // values that a block updates
constexpr int kFinishSquaresThreads = 1024;

std::vector<OptimizerRange> ranges_of(const std::vector<OptimizerTensor>& tensors) {
  std::vector<OptimizerRange> ranges;
  for (const OptimizerTensor& tensor : tensors) {
    require(tensor.offset >= 0 && tensor.offset % 4 == 0 && tensor.size >= 0,
            "tensors must begin at multiples of 4 values and have a size, not at {} with {}", tensor.offset,
            tensor.size);
    for (Index begin = 0; begin < tensor.size; begin += kRange) {
      const auto count = static_cast<int>(std::min(kRange, tensor.size - begin));
      ranges.push_back({tensor.offset + begin, count, tensor.decay ? 1 : 0});
    }
  }
  return ranges;
}

}  // namespace

KernelSource begin_step_source(ScheduleKind schedule) {
  KernelSource source = pointwise_source("BeginStep", "training/begin_step", {});
  source.rule.type = rule_name(schedule);
  return source;
}
KernelSource decide_source() { return pointwise_source("Decide", "training/decide", {}); }

KernelSource sum_squares_source(bool finish) {
  if (finish) {
    return pointwise_source("FinishSquares", "training/finish_squares",
                            {{"constexpr int kThreads", kFinishSquaresThreads}});
  }
  return pointwise_source(
      "SumSquares", "training/sum_squares",
      {{"constexpr int kVector", 4}, {"constexpr int kPart", kPart}, {"constexpr int kThreads", kBlockThreads}});
}

KernelSource check_finite_source(plan::Storage storage) {
  return pointwise_source("CheckFinite", "training/check_finite",
                          {{"using Storage", storage_type(storage)},
                           {"constexpr int kVector", kAlignment / plan::size_of(storage)},
                           {"constexpr int kThreads", kBlockThreads}});
}

KernelSource optimizer_source(const OptimizerSpec& spec) {
  KernelSource source = pointwise_source("Optimize", "training/optimizer",
                                         {{"using Storage", storage_type(spec.storage)},
                                          {"constexpr bool kCopy", spec.copy},
                                          {"constexpr int kVector", 4},
                                          {"constexpr int kThreads", kBlockThreads}});
  source.rule.type = rule_name(spec.kind);
  return source;
}

TrainingStepExecutable::TrainingStepExecutable(Device& device, const StepRules& rules)
    : rules_(rules),
      begin_(&Kernel::load(device, begin_step_source(static_cast<ScheduleKind>(rules.schedule)))),
      decide_(&Kernel::load(device, decide_source())) {}

void TrainingStepExecutable::begin(DeviceAddress state, DeviceAddress time_fraction, StreamHandle stream) const {
  require_aligned(state, alignof(StepState), "state");
  const TrainingStepArguments arguments{device_pointer<StepState>(state), device_pointer<const double>(time_fraction),
                                        rules_};
  begin_->launch(1, 1, arguments, stream);
}

void TrainingStepExecutable::decide(DeviceAddress state, StreamHandle stream) const {
  require_aligned(state, alignof(StepState), "state");
  const TrainingStepArguments arguments{device_pointer<StepState>(state), nullptr, rules_};
  decide_->launch(1, 1, arguments, stream);
}

SumSquaresExecutable::SumSquaresExecutable(Device& device, Index size, const SquareRanges& ranges)
    : bounds_{0, ranges.first_begin, ranges.first_end, ranges.last_begin, ranges.last_end, size},
      sum_(&Kernel::load(device, sum_squares_source(false))),
      finish_(&Kernel::load(device, sum_squares_source(true))) {
  require(size >= 0, "size must not be negative, not {}", size);
  if (ranges.last_end == 0) bounds_ = {0, 0, 0, 0, 0, size};
  require(std::ranges::is_sorted(bounds_), "ranges must lie one behind the other, in 0..{}", size);
  for (std::size_t i = 0; i + 1 < bounds_.size(); ++i) {
    require(bounds_[i] % 4 == 0, "ranges must lie at multiples of 4, not at {}", bounds_[i]);
    first_part_[i + 1] = first_part_[i] + blocks_for(bounds_[i + 1] - bounds_[i], kPart);
  }
}

void SumSquaresExecutable::run(DeviceAddress values, DeviceAddress result, DeviceAddress workspace,
                               StreamHandle stream) const {
  require_aligned(result, 8, "result");
  SquaresArguments arguments{};
  arguments.values = device_pointer<const float>(values);
  arguments.partial = device_pointer<double>(workspace);
  arguments.result = device_pointer<double>(result);
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    arguments.bounds[i] = bounds_[i];
    arguments.first_part[i] = static_cast<int>(first_part_[i]);
  }
  if (first_part_.back() > 0) {
    require_aligned(values, kAlignment, "values");
    require_aligned(workspace, kAlignment, "workspace");
    sum_->launch(static_cast<unsigned>(first_part_.back()), kBlockThreads, arguments, stream);
  }
  finish_->launch(1, kFinishSquaresThreads, arguments, stream);
}

CheckFiniteExecutable::CheckFiniteExecutable(Device& device, Index size, plan::Storage storage)
    : size_(size),
      blocks_(blocks_for(size, Index{kBlockThreads} * kAlignment / plan::size_of(storage), resident_blocks(device))),
      kernel_(&Kernel::load(device, check_finite_source(storage))) {
  require(size >= 0, "size must not be negative, not {}", size);
}

void CheckFiniteExecutable::run(DeviceAddress values, DeviceAddress flags, unsigned bit, StreamHandle stream) const {
  require_aligned(flags, 4, "flags");
  if (size_ == 0) return;
  require_aligned(values, kAlignment, "values");
  const FiniteArguments arguments{device_pointer<const char>(values), device_pointer<unsigned>(flags), size_, bit};
  kernel_->launch(static_cast<unsigned>(blocks_), kBlockThreads, arguments, stream);
}

OptimizerExecutable::OptimizerExecutable(Device& device, const OptimizerSpec& spec,
                                         const std::vector<OptimizerTensor>& tensors)
    : spec_(spec), kernel_(&Kernel::load(device, optimizer_source(spec))) {
  const std::vector<OptimizerRange> ranges = ranges_of(tensors);
  blocks_ = static_cast<unsigned>(ranges.size());
  ranges_.resize(ranges.size() * sizeof(OptimizerRange));
  if (!ranges.empty()) std::memcpy(ranges_.data(), ranges.data(), ranges_.size());
}

void OptimizerExecutable::run(const OptimizerCall& call, StreamHandle stream) const {
  const bool two = moments_of(spec_.kind) > 1;
  require((call.second != 0) == two, "second must be {}", two ? "an address on the GPU" : "null for one moment");
  require((call.copy != 0) == spec_.copy, "copy must be {}", spec_.copy ? "an address on the GPU" : "null");
  if (blocks_ == 0) return;
  require_aligned(call.state, alignof(StepState), "state");
  require_aligned(call.ranges, alignof(OptimizerRange), "ranges");
  require_aligned(call.gradients, kAlignment, "gradients");
  require_aligned(call.values, kAlignment, "values");
  require_aligned(call.first, kAlignment, "first");
  require_optional(call.second | call.copy, kAlignment, "second and copy");
  OptimizerArguments arguments{};
  arguments.state = device_pointer<const StepState>(call.state);
  arguments.ranges = device_pointer<const OptimizerRange>(call.ranges);
  arguments.gradients = device_pointer<const float>(call.gradients);
  arguments.values = device_pointer<float>(call.values);
  arguments.first = device_pointer<float>(call.first);
  arguments.second = device_pointer<float>(call.second);
  arguments.copy = device_pointer<char>(call.copy);
  arguments.beta1 = static_cast<float>(spec_.beta1);
  arguments.rest1 = static_cast<float>(1.0 - spec_.beta1);
  arguments.beta2 = static_cast<float>(spec_.beta2);
  arguments.rest2 = static_cast<float>(1.0 - spec_.beta2);
  arguments.epsilon = static_cast<float>(spec_.epsilon);
  kernel_->launch(blocks_, kBlockThreads, arguments, stream);
}

}  // namespace penstock::cuda
