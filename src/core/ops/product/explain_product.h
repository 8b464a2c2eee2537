#pragma once

#include <vector>

#include "ops/product/linear.h"
#include "plan/explain.h"

namespace penstock::ops {

/// y = x W^T over all positions on a GPU, and its gradients: what they would be made of.
struct InputProducts {
  Index positions, inputs, outputs;
  plan::Storage storage;
  bool bias;
  bool exact = false;  ///< The forward pass.
  bool tf32 = false;

  PlanReport forward(const plan::GpuModel& gpu) const;
  std::vector<PlanReport> backward(bool wants_dx, const plan::GpuModel& gpu) const;
};

/// Returns the plans that an op on a target would use. On a GPU (target.device.is_cuda()) they are for machine.gpu,
/// which need not be this machine's.
std::vector<PlanReport> explain_linear(const Linear& shape, bool backward, bool wants_dx, const Target& target,
                                       const plan::Machine& machine);

}  // namespace penstock::ops
