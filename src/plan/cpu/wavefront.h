#pragma once

#include <cstdint>

#include "plan/gpu/dense.h"
#include "plan/machine.h"

namespace penstock::plan {

/// Layers on top of each other on a CPU: a chunk of steps of one layer can run while others run the next chunk of the
/// layer below.
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

/// The same on a GPU, where layers run on branches of a stream's work and their blocks share the chip.
struct GpuWavefront {
  Index chunk = 0;          ///< Steps of a chunk, a multiple of 8; 0: each layer by itself is as quick.
  GpuDensePlan plan;        ///< Of the recurrence of a chunk
  double microseconds = 0;  ///< Of all layers and their matrix products, as estimated

  Index chunks(Index steps) const { return (steps + chunk - 1) / chunk; }
};

/// Layers that have branches of their own; others take turns with them.
constexpr Index wavefront_branches = 8;

/// `layer`: the recurrence of one of the layers, forward or backward, over all steps, whose input is as wide as its
/// output.
GpuWavefront gpu_wavefront(Index layers, const GpuDenseProblem& layer, const GpuModel& gpu);

}  // namespace penstock::plan
