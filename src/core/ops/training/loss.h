#pragma once

#include "base/training_step.h"
#include "ops/op.h"

namespace penstock::ops {

/// Sums over the scored steps of a batch; the loss is sum / weight.
struct LossSum {
  double sum = 0.0;
  double weight = 0.0;  ///< cross-entropy: scored steps; MSE, MAE: sum of the weights
  Index scored = 0;     ///< Positions with a target.
  Index correct = 0;    ///< cross-entropy: scored positions whose likeliest class is the label

  double mean() const { return weight > 0.0 ? sum / weight : 0.0; }
  LossSum& operator+=(const LossSum& other);
};

/// Scratch of the functions below: a sum and a flag of each position.
struct LossScratch {
  double* row_loss;   // [positions]
  bool* row_correct;  // [positions]

  static std::size_t bytes(Index positions) {
    return static_cast<std::size_t>(positions) * (sizeof(double) + sizeof(bool));
  }
  static LossScratch in(void* memory, Index positions) {
    auto* const row_loss = static_cast<double*>(memory);
    return {row_loss, reinterpret_cast<bool*>(row_loss + positions)};
  }
};

/// -log softmax(logits)[label] summed over the positions whose label is not -1, in nats. logits [positions, classes],
/// labels [positions]. Unless null, `gradient` [positions, classes] becomes that of the mean: (softmax - onehot) /
/// scored. Throws Error(invalid_argument) for a label outside -1..classes-1.
LossSum cross_entropy(int threads, Index positions, Index classes, const float* logits, const std::int32_t* labels,
                      float* gradient, const LossScratch& scratch);

/// Outputs, targets and weights of a regression, each [positions, width].
struct Regression {
  Index positions, width;
  const float *y, *targets, *weights;
};

/// Returns weight * term(y - target) summed, by the loss's rule in base/training/losses.h; y, targets,
/// weights [positions, width]. Values of weight 0 are not read. Unless null, `gradient` becomes that of the weighted
/// mean: weight * slope(y - target) / sum of weights.
LossSum regression_loss(LossKind kind, int threads, const Regression& batch, float* gradient,
                        const LossScratch& scratch);

}  // namespace penstock::ops
