#pragma once

#include <cstdint>

#include "plan/machine.h"

namespace penstock::plan {

/// Layers on top of each other on a CPU: a chunk of steps of one layer can run beside the next chunk of the layer
/// below.
struct WavefrontProblem {
  Index layers = 1;
  Index rows = 1;   ///< B
  Index steps = 1;  ///< T
  int threads = 1;
  std::int64_t layer_bytes = 0;  ///< Of the recurrent matrix of a layer, which every step reads
  bool backward = false;
};

/// Steps of a chunk, or 0: each layer by itself, on all threads, is as quick.
Index wavefront_chunk(const WavefrontProblem& problem, const CpuModel& machine);

}  // namespace penstock::plan
