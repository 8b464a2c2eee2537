#pragma once

#include "nn/arena.h"
#include "penstock/train.h"

namespace penstock::training {

/// Sums over the scored steps of a batch; the loss is sum / weight.
struct LossSum {
  double sum = 0.0;
  double weight = 0.0;  ///< cross-entropy: scored steps; MSE, MAE: sum of the weights
  Index scored = 0;     ///< Steps [B, T] with a target.
  Index correct = 0;    ///< cross-entropy: scored steps whose likeliest class is the label

  double mean() const { return weight > 0.0 ? sum / weight : 0.0; }
  LossSum& operator+=(const LossSum& other);
};

/// -log softmax(logits)[label] summed over the rows whose label is not -1, in nats. logits [rows, classes], labels
/// [rows]. Unless null, `gradient` [rows, classes] becomes that of the mean: (softmax - onehot) / scored.
/// Throws Error(invalid_argument) for a label outside -1..classes-1.
LossSum cross_entropy(const Execution& execution, Index rows, Index classes, const float* logits,
                      const std::int32_t* labels, float* gradient, nn::Arena& arena);

/// weight * (y - target)^2 summed; y, targets, weights [rows, width]. Values of weight 0 are not read. Unless null,
/// `gradient` becomes that of the weighted mean: 2 weight (y - target) / sum of weights.
LossSum mean_squared_error(const Execution& execution, Index rows, Index width, const float* y, const float* targets,
                           const float* weights, float* gradient, nn::Arena& arena);

/// The same for weight * |y - target|; the gradient is 0 where y equals the target.
LossSum mean_absolute_error(const Execution& execution, Index rows, Index width, const float* y, const float* targets,
                            const float* weights, float* gradient, nn::Arena& arena);

}  // namespace penstock::training
