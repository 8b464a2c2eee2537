#pragma once

#include <array>

#include "backend/cuda/driver/api.h"
#include "penstock/types.h"
#include "plan/gpu/scan.h"

namespace penstock::cuda {

/// One axis of a tensor as Hopper's copy engine sees it.
struct MapAxis {
  Index size = 1;
  Index stride = 0;  ///< In bytes, a multiple of 16; not of the first axis, whose values lie side by side
  int box = 1;       ///< How much of it one copy takes, at most 256
};

/// Returns the copy engine's description of a tensor of bf16 or f16 at an address, innermost axis first. `line`: bytes
/// that one copy takes of the first axis, 64 or 128, whose pieces of 16 bytes lie in shared memory in the order that
/// tensor cores read. Throws Error if the driver refuses it.
template <std::size_t rank>
TensorMap tensor_map(plan::Storage storage, DeviceAddress data, const std::array<MapAxis, rank>& axes, int line);

}  // namespace penstock::cuda
