#include "plan/wavefront.h"

#include <algorithm>
#include <cmath>

namespace penstock::plan {

Index wavefront_chunk(const WavefrontProblem& problem, const CpuModel& machine) {
  const CpuCosts& costs = machine.costs;
  const auto steps = static_cast<double>(problem.steps);
  if (problem.layers < 2 || problem.threads < 2) return 0;
  if (static_cast<double>(problem.rows) >= costs.wave_rows * problem.threads) return 0;
  if (steps < 2 * costs.wave_steps) return 0;
  // Backward, threads that have a row each wait for nobody, and read what their row alone left: two rows of 128 to 256
  // units on two threads take 0.9 of a wavefront's time.
  if (problem.backward && problem.rows >= problem.threads && problem.rows < 2 * problem.threads) return 0;
  // A thread of a wavefront reads the whole recurrent matrix of a layer in every step; threads that share a layer read
  // a part of it each. So the matrix has to fit the cache of one core: four LSTM layers of 192 units (0.6 MB) take 0.8
  // of what they took, of 384 (2.4 MB) a tenth more.
  const double share = problem.backward ? costs.wave_backward_share : costs.wave_matrix_share;
  const double cache = share * static_cast<double>(machine.l2_bytes);
  if (static_cast<double>(problem.layer_bytes) > cache) return 0;
  return static_cast<Index>(std::max(std::ceil(costs.wave_steps), std::ceil(steps / costs.wave_chunks)));
}

}  // namespace penstock::plan
