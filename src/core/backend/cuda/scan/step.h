#pragma once

#include "backend/cuda/scan/layer.h"

namespace penstock::cuda {

/// One step of B rows through a layer, for streams: one launch, the state updated in place.
struct LayerStep {
  Index rows = 1;       ///< B
  DeviceAddress x = 0;  ///< [B, I]
  Index x_stride = 0;   ///< Elements from row to row
  DeviceAddress y = 0;  ///< [B, H]
  Index y_stride = 0;
  DeviceAddress state = 0;  ///< float [B, H]
  LayerWeights weights;
};

/// Differs from a sequence of one step in that gates are never rounded to the storage. Running allocates nothing, waits
/// for nothing, and can be captured; any number of calls at once.
class StepExecutable {
 public:
  /// Throws Error: invalid_argument for what does not fit, unsupported without NVRTC.
  StepExecutable(Device& device, const LayerSpec& spec, const LayerStep& call);
  /// A call of as many rows and of the same alignment or better.
  void run(const LayerStep& call, StreamHandle stream) const;
  const Kernel& kernel() const { return *kernel_; }

 private:
  LayerSpec spec_;
  Index rows_;
  int alignment_;
  int warps_ = 1;  // of a block
  const Kernel* kernel_;
};

/// The kernel for rows that are multiples of `alignment` bytes apart, in blocks of `warps`.
KernelSource step_source(const LayerSpec& spec, Index rows, int alignment, int warps);

}  // namespace penstock::cuda
