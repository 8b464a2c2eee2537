#pragma once

#include "plan/gpu/scan.h"

namespace penstock::plan {

/// Returns an H200 as the driver describes it.
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
