#pragma once

#include <cstdint>

#include "plan/gpu/dense.h"
#include "plan/machine.h"

namespace penstock::plan {

/// Stacked layers on a CPU as a wavefront: a chunk of steps of one layer runs while other threads run the next chunk of
/// the layer below.
struct WavefrontProblem {
  Index layers = 1;
  Index rows = 1;   ///< B
  Index steps = 1;  ///< T
  int threads = 1;
  double microseconds = 0;       ///< Estimated time of all layers on one thread
  std::int64_t layer_bytes = 0;  ///< Bytes of the recurrent matrix of a layer, which every step reads
  bool backward = false;
};

/// Returns the steps of a chunk; 0 if running layers one by one on all threads is as fast.
Index wavefront_chunk(const WavefrontProblem& problem, const CpuModel& machine);

/// A wavefront on a GPU: layers run on parallel branches of a stream, and their blocks share the chip.
struct GpuWavefront {
  Index chunk = 0;          ///< Steps of a chunk, a multiple of 8; 0: running layers one by one is as fast.
  GpuDensePlan plan;        ///< Plan for the recurrence of a chunk
  double microseconds = 0;  ///< Estimated time of all layers and their matrix products

  Index chunks(Index steps) const { return (steps + chunk - 1) / chunk; }
};

/// Largest number of branches; further layers take turns.
constexpr Index wavefront_branches = 8;

/// Returns the wavefront for `layers` equal layers. `layer` is the recurrence of one of them, forward or backward, over
/// all steps; its input and output have the same width.
GpuWavefront gpu_wavefront(Index layers, const GpuDenseProblem& layer, const GpuModel& gpu);

}  // namespace penstock::plan
