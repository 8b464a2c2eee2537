#include "plan/wavefront.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/cpu/pays_for_team.h"
#include "plan/tuning.h"

namespace penstock::plan {

namespace {

/// Returns the plan of a layer on a share of the chip, if other layers can run next to it. Some algorithms cannot: they
/// need all blocks of a launch to run at once, or a launch per step.
std::optional<GpuDensePlan> plan_on_share(const GpuDenseProblem& layer, GpuModel gpu, Index shares) {
  std::optional<Unrecorded> whole_chip_only;  // only plans for the whole chip are measured
  if (shares > 1) {
    whole_chip_only.emplace();
    gpu.tuned = nullptr;
  }
  gpu.multiprocessors /= static_cast<int>(shares);
  try {
    GpuDensePlan plan = plan_gpu_dense(layer, gpu);
    if (plan.algorithm == DenseAlgorithm::head || plan.algorithm == DenseAlgorithm::cluster) return plan;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
  }
  return std::nullopt;
}

/// Returns the blocks of a plan that run at once.
Index blocks_at_once(const GpuDensePlan& plan, const GpuModel& gpu) {
  if (plan.algorithm == DenseAlgorithm::cluster) return clusters_at_once(gpu, plan.cluster) * plan.cluster;
  return Index{gpu.multiprocessors} * plan.blocks;
}

/// Returns the microseconds of the product between a layer and the one below: its input product, or backward the
/// gradient of its input.
double product_between(const GpuDenseProblem& layer, const GpuCosts& costs) {
  const double products = static_cast<double>(layer.rows * layer.steps * cell_traits(layer.cell).info.gates) *
                          static_cast<double>(layer.hidden * layer.hidden);
  return products / (layer.storage == Storage::f32 ? costs.common.tf32 : costs.common.halves);
}

/// The time of a wavefront with layers that run on shares of the chip.
class WaveTime {
 public:
  WaveTime(Index layers, const GpuDenseProblem& layer, const GpuDensePlan& plan, const GpuModel& gpu)
      : costs_(gpu.costs),
        layers_(static_cast<double>(layers)),
        recurrence_(plan.microseconds),
        product_(product_between(layer, gpu.costs)),
        weights_(layer.backward ? 2 * layers_ * product_ : 0.0) {
    // Active layers share the chip by their blocks; layers without a branch take turns.
    const auto blocks = static_cast<double>(std::max<Index>(1, blocks_at_once(plan, gpu)));
    const double turns = std::ceil(layers_ / static_cast<double>(wavefront_branches));
    at_once_ = std::max(turns, layers_ * static_cast<double>(plan.grid) / blocks);
  }

  /// Returns the time for a number of chunks. The product of the lowest layer comes first, or in a backward pass last.
  /// The others run while their layer computes the previous chunk. Products of weight gradients are counted in full:
  /// they run after their layer, when the chip is less busy.
  double of(double chunks) const {
    const double waves = at_once_ * (recurrence_ + chunks * costs_.wavefront.chunk);
    const double delay = (layers_ - 1) * ((recurrence_ + product_) / chunks + costs_.wavefront.chunk);
    return std::max(product_ + waves + delay, layers_ * chunks * costs_.wavefront.launch) + weights_;
  }

 private:
  const GpuCosts& costs_;
  double layers_, recurrence_, product_, weights_, at_once_ = 1;
};

}  // namespace

Index wavefront_chunk(const WavefrontProblem& problem, const CpuModel& machine) {
  const CpuCosts& costs = machine.costs;
  const auto steps = static_cast<double>(problem.steps);
  if (problem.layers < 2 || problem.threads < 2 || !pays_for_team(problem.microseconds)) return 0;
  if (static_cast<double>(problem.rows) >= costs.wave_rows * problem.threads) return 0;
  if (steps < 2 * costs.wave_steps) return 0;
  // Backward passes: threads with one row each do not wait, and read only the tape of their row. Two rows of 128 to 256
  // units on two threads take 0.9 of the time of a wavefront.
  if (problem.backward && problem.rows >= problem.threads && problem.rows < 2 * problem.threads) return 0;
  // A thread of a wavefront reads the whole recurrent matrix of a layer in every step; threads that share a layer read
  // only a part of it. Therefore the matrix must fit the cache of one core. Four LSTM layers of 192 units (0.6 MB) take
  // 0.8 of the time without a wavefront; with 384 units (2.4 MB) they take a tenth more.
  const double share = problem.backward ? costs.wave_backward_share : costs.wave_matrix_share;
  const double cache = share * static_cast<double>(machine.l2_bytes);
  if (static_cast<double>(problem.layer_bytes) > cache) return 0;
  return static_cast<Index>(std::max(std::ceil(costs.wave_steps), std::ceil(steps / costs.wave_chunks)));
}

GpuWavefront gpu_wavefront(Index layers, const GpuDenseProblem& layer, const GpuModel& gpu) {
  // Chunks start at multiples of 16 bytes of the tape's states, for any H.
  constexpr Index unit = 8;
  constexpr Index most_chunks = 64;
  GpuWavefront best;
  if (layers < 2 || layer.ragged || layer.steps < 2 * unit) return best;
  const double products = (layer.backward ? 3 : 1) * product_between(layer, gpu.costs);
  best.microseconds = static_cast<double>(layers) * (plan_gpu_dense(layer, gpu).microseconds + products);
  for (Index shares = 1; shares <= std::min(layers, wavefront_branches); ++shares) {
    const std::optional<GpuDensePlan> plan = plan_on_share(layer, gpu, shares);
    if (!plan) continue;
    const WaveTime time(layers, layer, *plan, gpu);
    for (Index chunks = 2; chunks <= std::min(most_chunks, layer.steps / unit); ++chunks) {
      const double microseconds = time.of(static_cast<double>(chunks));
      if (microseconds >= best.microseconds) continue;
      const Index steps = (layer.steps + chunks - 1) / chunks;
      best = {(steps + unit - 1) / unit * unit, *plan, microseconds};
    }
  }
  return best;
}

}  // namespace penstock::plan
