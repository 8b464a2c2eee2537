#include "plan/wavefront.h"

#include <algorithm>

namespace penstock::plan {

namespace {

// From so many rows for each thread on, a layer's threads share its rows and gain what threads can.
constexpr Index rows_of_a_thread = 16;
// While the first chunk runs, and the last, threads have nothing to do: of many chunks that is little.
constexpr Index many_chunks = 16;
// A thread of a wavefront reads the whole recurrent matrix of a layer in every step; threads that share a layer read a
// part of it each. So the matrix has to fit the cache of one core: four LSTM layers of 192 units (0.6 MB) take 0.8 of
// what they took, of 384 (2.4 MB) a tenth more.
constexpr double share_of_l2 = 0.8;
// The input product of fewer positions reads its weights for too little work, and so does the first step of a chunk.
constexpr Index fewest_steps = 8;

}  // namespace

Index wavefront_chunk(const WavefrontProblem& problem, const CpuModel& machine) {
  if (problem.layers < 2 || problem.threads < 2) return 0;
  if (problem.rows >= rows_of_a_thread * problem.threads) return 0;
  if (problem.steps < 2 * fewest_steps) return 0;
  if (static_cast<double>(problem.layer_bytes) > share_of_l2 * static_cast<double>(machine.l2_bytes)) return 0;
  return std::max(fewest_steps, (problem.steps + many_chunks - 1) / many_chunks);
}

}  // namespace penstock::plan
