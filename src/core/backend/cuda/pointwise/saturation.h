#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// Counts the values beyond +-0.99 of some rows.
class SaturationExecutable {
 public:
  SaturationExecutable(Device& device, Index rows, Index width, Index row_stride, plan::Storage storage);
  /// `counts`: int64 [2], written: how many are beyond, and how many there are.
  void run(DeviceAddress values, DeviceAddress counts, StreamHandle stream) const;

 private:
  Device* device_;
  Index rows_, width_, row_stride_;
  const Kernel* kernel_;
};

KernelSource saturation_source(plan::Storage storage);

}  // namespace penstock::cuda
