#pragma once

#include "backend/cuda/driver/device.h"
#include "ops/memory/memory.h"

namespace penstock::ops {

/// The stream, behind a type that other headers need not know.
struct Queue::Cuda {
  explicit Cuda(int index) : stream(cuda::Device::get(index)) {}
  cuda::Stream stream;
};

}  // namespace penstock::ops
