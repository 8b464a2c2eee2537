#pragma once

#include "plan/gpu/gpu.h"

namespace penstock::plan {

/// As the driver describes an H200.
inline GpuModel h200() {
  return {.name = "H200",
          .compute_major = 9,
          .multiprocessors = 132,
          .threads = 2048,
          .registers = 65536,
          .shared_bytes = 233472,
          .block_bytes = 232448};
}

}  // namespace penstock::plan
