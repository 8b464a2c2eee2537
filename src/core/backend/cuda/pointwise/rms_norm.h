#pragma once

#include "backend/cuda/pointwise/residual.h"

namespace penstock::cuda {

/// y = gain * x / sqrt(mean(x^2) + epsilon), row by row; with a branch, of the sum x + dropout(branch), which is what a
/// residual connection and the norm after it make of each other in one pass over memory.
struct RmsNorm {
  Index rows = 1, width = 1;  ///< W
  plan::Storage storage = plan::Storage::bf16;
  double epsilon = 1e-6;
  bool branch = false;       ///< Forward: there is one. Backward: its gradient differs from dx, as after a dropout.
  DropoutSite dropout = {};  ///< Dropout of the branch
  bool add_dx = false;       ///< Backward: there is a gradient of the sum from elsewhere to add.
  bool sums = false;         ///< Backward: the sums of the columns of the branch's gradient are wanted.
  bool add_gain = false;     ///< The gradient of the gain is added to, instead of replaced
  int alignment = kAlignment;
};

struct RmsNormForwardCall {
  DeviceAddress x = 0;        ///< [rows, W]
  DeviceAddress branch = 0;   ///< [rows, W], or 0 without
  DeviceAddress gain = 0;     ///< float [W]
  DeviceAddress sum = 0;      ///< [rows, W], or 0 without a branch; may be x or branch
  DeviceAddress y = 0;        ///< [rows, W]; may be x without a branch, and branch with one
  DeviceAddress inverse = 0;  ///< float [rows] for the backward pass: 1 / sqrt(mean + epsilon); or 0
  DeviceAddress seed = 0;     ///< uint64, or 0 without dropout
};

class RmsNormForwardExecutable {
 public:
  RmsNormForwardExecutable(Device& device, const RmsNorm& spec);
  void run(const RmsNormForwardCall& call, StreamHandle stream) const;

 private:
  RmsNorm spec_;
  RowPlan plan_;
  Index blocks_;
  const Kernel* kernel_;
};

struct RmsNormBackwardCall {
  DeviceAddress x = 0;              ///< [rows, W]: what was normalised, the sum where there was a branch
  DeviceAddress dy = 0;             ///< [rows, W]
  DeviceAddress inverse = 0;        ///< float [rows], as of the forward pass
  DeviceAddress gain = 0;           ///< float [W]
  DeviceAddress d = 0;              ///< [rows, W]: added to dx, or 0 without
  DeviceAddress dx = 0;             ///< [rows, W]; may be d or dy
  DeviceAddress dbranch = 0;        ///< [rows, W] = dropout's gradient of dx, or 0 without; may be dy
  DeviceAddress gain_gradient = 0;  ///< float [W]
  DeviceAddress sums = 0;           ///< float [W]: sums of the columns of dbranch, or of dx without; or 0
  DeviceAddress seed = 0;           ///< As of the forward pass of the branch; 0 without a branch
};

class RmsNormBackwardExecutable {
 public:
  RmsNormBackwardExecutable(Device& device, const RmsNorm& spec);
  std::size_t workspace_bytes() const { return sums_.bytes(); }
  void run(const RmsNormBackwardCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  RmsNorm spec_;
  RowPlan plan_;
  Index blocks_;
  const Kernel* kernel_;
  SumParts sums_;
};

KernelSource rms_norm_forward_source(const RmsNorm& spec);
KernelSource rms_norm_backward_source(const RmsNorm& spec);

}  // namespace penstock::cuda
