#include "backend/cuda/pointwise/saturation.h"

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/pointwise/arguments.h"
#include "base/training_step.h"

namespace penstock::cuda {
KernelSource saturation_source(plan::Storage storage) {
  return pointwise_source("Saturation", "training/saturation",
                          {{"using Storage", storage_type(storage)}, {"constexpr int kThreads", kBlockThreads}});
}

SaturationExecutable::SaturationExecutable(Device& device, Index rows, Index width, Index row_stride,
                                           plan::Storage storage)
    : device_(&device),
      rows_(rows),
      width_(width),
      row_stride_(row_stride),
      kernel_(&Kernel::load(device, saturation_source(storage))) {}

void SaturationExecutable::run(DeviceAddress values, DeviceAddress counts, StreamHandle stream) const {
  require_aligned(counts, 8, "counts");
  device_->make_current();
  check(driver().fill_bytes(counts, 0, 16, stream), "clearing counts");
  const SaturationArguments arguments{device_pointer<const char>(values), device_pointer<unsigned long long>(counts),
                                      rows_, width_, row_stride_};
  const unsigned blocks = blocks_for(rows_, 1, resident_blocks(*device_, 1));  // few, as each adds to the same counts
  if (blocks > 0) kernel_->launch(blocks, kBlockThreads, arguments, stream);
}

}  // namespace penstock::cuda
