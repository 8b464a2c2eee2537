#pragma once

#include <cstddef>

#include "backend/cuda/driver/api.h"

namespace penstock::cuda {

/// The memory of a GPU that this process has, allocated and freed in the order of a stream. Freed memory stays in the
/// pool: returning it to the driver at each synchronisation costs more than the work does. The GPU's context must be
/// current.
class MemoryPool {
 public:
  /// Creates the pool on a GPU, given by the driver's handle.
  void open(int gpu);
  /// Returns 0 if the GPU has less memory left.
  DeviceAddress allocate(std::size_t bytes, StreamHandle stream);
  /// A failure is one that the next synchronisation reports as well.
  static void free(DeviceAddress address, StreamHandle stream) noexcept;
  /// Number of allocations by this process so far, on all devices.
  static unsigned long long allocations();

 private:
  PoolHandle handle_ = nullptr;
};

}  // namespace penstock::cuda
