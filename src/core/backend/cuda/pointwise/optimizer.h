#pragma once

#include <array>
#include <vector>

#include "backend/cuda/pointwise/launch.h"
#include "base/training_step.h"

/// A training step without the host: BeginStep, then the graph's forward pass, loss (loss.h) and backward pass, then
/// SumSquares over all gradients into StepState::gradient_squares, Decide, and Optimizer. Everything passes through one
/// StepState in device memory.
namespace penstock::cuda {

/// A member's address, given the struct's: device_member(state, &StepState::loss_scale).
template <class Struct, class Member>
DeviceAddress device_member(DeviceAddress object, Member Struct::*member) {
  const Struct* const zero = nullptr;
  return object + reinterpret_cast<DeviceAddress>(&(zero->*member));
}

/// BeginStep clears what a batch leaves in the state, and writes the step's dropout seed and learning rate. Decide
/// makes of what the batch left whether the optimiser may update, and with which factors; counts; and moves the loss
/// scale.
class TrainingStepExecutable {
 public:
  TrainingStepExecutable(Device& device, const StepRules& rules);
  /// `time_fraction`: how much of the run's wall time has passed, a double in device memory, or 0 without such a limit.
  void begin(DeviceAddress state, DeviceAddress time_fraction, StreamHandle stream) const;
  void decide(DeviceAddress state, StreamHandle stream) const;

 private:
  StepRules rules_;
  const Kernel *begin_, *decide_;
};

/// Places of two ranges of a store, one after the other, each at multiples of 4.
struct SquareRanges {
  Index first_begin = 0, first_end = 0, last_begin = 0, last_end = 0;
};

/// The sum of the squares of float [size], in double: not finite if one of them is not. And those of two ranges alone.
class SumSquaresExecutable {
 public:
  SumSquaresExecutable(Device& device, Index size, const SquareRanges& ranges = {});
  std::size_t workspace_bytes() const { return static_cast<std::size_t>(8 * first_part_.back()); }
  /// `result`: double [3], written.
  void run(DeviceAddress values, DeviceAddress result, DeviceAddress workspace, StreamHandle stream) const;

 private:
  std::array<Index, 6> bounds_;
  std::array<Index, 6> first_part_ = {};
  const Kernel *sum_, *finish_;
};

/// Sets a bit of uint32 flags, such as StepState::broken, if one of [size] is not finite; never clears it.
class CheckFiniteExecutable {
 public:
  CheckFiniteExecutable(Device& device, Index size, plan::Storage storage);
  void run(DeviceAddress values, DeviceAddress flags, unsigned bit, StreamHandle stream) const;

 private:
  Index size_, blocks_;
  const Kernel* kernel_;
};

/// One tensor of the flat store of parameters.
struct OptimizerTensor {
  Index offset = 0, size = 0;  ///< The offset a multiple of 4
  bool decay = false;
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;  ///< SGD: beta1 is the momentum
  bool copy = true;                                  ///< Updated weights are written to a copy in `storage` as well.
  plan::Storage storage = plan::Storage::bf16;
};

struct OptimizerCall {
  DeviceAddress state = 0;      ///< StepState, after Decide
  DeviceAddress ranges = 0;     ///< As Optimizer::ranges() has them
  DeviceAddress gradients = 0;  ///< float [store], as the next
  DeviceAddress values = 0;     ///< Master weights
  DeviceAddress first = 0;      ///< First moments; SGD: momentum
  DeviceAddress second = 0;     ///< Second moments; 0 for a rule with one
  DeviceAddress copy = 0;       ///< [store] in `storage`, or 0 without
};

/// Updates the whole store in one launch; does nothing if the step's decision says so. ops/training/training.h states
/// the equations.
class OptimizerExecutable {
 public:
  OptimizerExecutable(Device& device, const OptimizerSpec& spec, const std::vector<OptimizerTensor>& tensors);
  /// Returns the bytes of the table of ranges, which the caller uploads once.
  const std::vector<unsigned char>& ranges() const { return ranges_; }
  void run(const OptimizerCall& call, StreamHandle stream) const;

 private:
  OptimizerSpec spec_;
  std::vector<unsigned char> ranges_;
  unsigned blocks_ = 0;
  const Kernel* kernel_;
};

KernelSource begin_step_source(ScheduleKind schedule);
KernelSource decide_source();
KernelSource sum_squares_source(bool finish);
KernelSource check_finite_source(plan::Storage storage);
KernelSource optimizer_source(const OptimizerSpec& spec);

}  // namespace penstock::cuda
