#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/pointwise/elementwise.h"
#include "ops/product/matmul.h"
#include "ops/training/training.h"

// Muon of Jordan et al. 2024 as torch.optim.Muon has it: Nesterov's momentum, made nearly orthogonal by five steps of
// Newton and Schulz, at the learning rate that suits AdamW (Liu et al. 2025). Products are of floats, not of bfloat16.

namespace penstock::ops {
namespace {

constexpr float weight_of_past = 0.95f;
constexpr int newton_schulz_steps = 5;
constexpr float linear = 3.4445f, cubic = -4.7750f, quintic = 2.0315f;
constexpr double least_norm = 1e-7;
constexpr float root_mean_square = 0.2f;  // of an update by AdamW

/// The memory that the update of a matrix takes.
struct Scratch {
  float *update, *next;   // [rows, columns]
  float *gram, *squared;  // [M, M]: M is the smaller of rows and columns
};

Index smaller_side(const StoredMatrix& matrix) { return std::min(matrix.rows, matrix.columns); }

/// Calls body(i) for each of n values.
template <class Body>
void for_each_value(int threads, Index n, const Body& body) {
  for_range(threads, n, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) body(i);
  });
}

/// Brings the singular values of scratch.update near 1.
void orthogonalise(const StoredMatrix& matrix, Scratch& scratch, const Execution& execution) {
  const auto [offset, rows, columns, decay] = matrix;
  const Index side = smaller_side(matrix), size = rows * columns;
  const bool tall = rows > columns;
  double squares = 0.0;
  for (Index i = 0; i < size; ++i) squares += static_cast<double>(scratch.update[i]) * scratch.update[i];
  const auto scale = static_cast<float>(1.0 / std::max(std::sqrt(squares), least_norm));
  for_each_value(execution.threads, size, [&](Index i) { scratch.update[i] *= scale; });
  for (int step = 0; step < newton_schulz_steps; ++step) {
    const Matrix<float> x{scratch.update, columns}, turned{scratch.update, columns, true}, gram{scratch.gram, side};
    matmul<float>({side, side, std::max(rows, columns)}, tall ? turned : x, tall ? x : turned, {scratch.gram, side},
                  execution);
    matmul<float>({side, side, side}, gram, gram, {scratch.squared, side}, execution);
    for_each_value(execution.threads, side * side,
                   [&](Index i) { scratch.squared[i] = cubic * scratch.gram[i] + quintic * scratch.squared[i]; });
    for_each_value(execution.threads, size, [&](Index i) { scratch.next[i] = linear * scratch.update[i]; });
    const Matrix<float> factor{scratch.squared, side};
    matmul<float>({rows, columns, side}, tall ? x : factor, tall ? factor : x, {scratch.next, columns, true},
                  execution);
    std::swap(scratch.update, scratch.next);
  }
}

void update(const StoredMatrix& matrix, const StepState& state, Scratch scratch, const Execution& execution,
            const Operands& memory) {
  const float* const gradients = memory.get<const float>(MuonOperand::gradients) + matrix.offset;
  float* const values = memory.get<float>(MuonOperand::values) + matrix.offset;
  float* const momentum = memory.get<float>(MuonOperand::momentum) + matrix.offset;
  const Index size = matrix.rows * matrix.columns;
  for_each_value(execution.threads, size, [&](Index i) {
    const float gradient = gradients[i] * state.gradient_factor;
    momentum[i] += (1.0f - weight_of_past) * (gradient - momentum[i]);
    scratch.update[i] = gradient + weight_of_past * (momentum[i] - gradient);
  });
  orthogonalise(matrix, scratch, execution);
  const float longest = std::sqrt(static_cast<float>(std::max(matrix.rows, matrix.columns)));
  const float rate = static_cast<float>(state.learning_rate) * root_mean_square * longest;
  const float keep = matrix.decay ? state.decay_factor : 1.0f;
  for_each_value(execution.threads, size, [&](Index i) { values[i] = keep * values[i] - rate * scratch.update[i]; });
}

}  // namespace

Op muon(const std::vector<StoredMatrix>& matrices) {
  return {"muon", [matrices](const Target& target) -> std::unique_ptr<Executable> {
            if (target.device.is_cuda()) {
              fail_with(ErrorCode::unsupported,
                        {"choose ", the_option("device", "cpu"), ", another ", the_option("optimizer"),
                         ", or penstock.torch.fit, which has Muon on GPUs"},
                        "the optimizer muon runs on CPUs only");
            }
            Index size = 0, square = 0;
            for (const StoredMatrix& matrix : matrices) {
              size = std::max(size, matrix.rows * matrix.columns);
              square = std::max(square, smaller_side(matrix) * smaller_side(matrix));
            }
            const auto run = [=, execution = target.execution](const Call& call, const Operands& memory) {
              const StepState& state = *memory.get<const StepState>(MuonOperand::state);
              if (state.apply == 0) return;
              Execution lent = execution;
              lent.threads = call.threads;
              auto* const begin = static_cast<float*>(memory.scratch);
              const Scratch scratch{begin, begin + size, begin + 2 * size, begin + 2 * size + square};
              for (const StoredMatrix& matrix : matrices) update(matrix, state, scratch, lent, memory);
            };
            return simple(run, static_cast<std::size_t>(2 * (size + square)) * sizeof(float));
          }};
}

}  // namespace penstock::ops
