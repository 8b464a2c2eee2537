#include "ops/training/loss.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/element_kernels.h"
#include "base/check.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

struct RowLoss {
  double loss;
  bool correct;
};

/// One scored row of cross_entropy(); `scale` is 1 / scored.
RowLoss cross_entropy_row(const cpu::ElementKernels<float>& kernels, Index classes, const float* logits, Index label,
                          float scale, float* gradient) {
  float largest = logits[0];
  for (Index c = 1; c < classes; ++c) largest = std::max(largest, logits[c]);
  const float sum = kernels.exponentials(classes, largest, logits, gradient);
  if (gradient) {
    const float factor = scale / sum;
    for (Index c = 0; c < classes; ++c) gradient[c] *= factor;
    gradient[label] -= scale;
  }
  return {std::log(static_cast<double>(sum)) + static_cast<double>(largest) - static_cast<double>(logits[label]),
          logits[label] == largest};
}

template <class Rule>
LossSum regression(int threads, const Regression& batch, float* gradient, const LossScratch& scratch) {
  const Index positions = batch.positions, width = batch.width;
  const float *const y = batch.y, *const targets = batch.targets, *const weights = batch.weights;
  LossSum result;
  for (Index r = 0; r < positions; ++r) {
    const float* const weight = weights + r * width;
    double row_weight = 0.0;
    for (Index c = 0; c < width; ++c) row_weight += static_cast<double>(weight[c]);
    result.weight += row_weight;
    result.scored += row_weight > 0.0 ? 1 : 0;
  }
  const double scale = result.weight > 0.0 ? 1.0 / result.weight : 0.0;
  double* const row_loss = scratch.row_loss;
  for_range(threads, positions, width, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      row_loss[r] = 0.0;
      for (Index i = r * width; i < (r + 1) * width; ++i) {
        if (gradient) gradient[i] = 0.0f;
        if (weights[i] == 0.0f) continue;
        const double weight = static_cast<double>(weights[i]);
        const double difference = static_cast<double>(y[i]) - static_cast<double>(targets[i]);
        row_loss[r] += weight * Rule::Term(difference);
        if (gradient) gradient[i] = static_cast<float>(scale * weight * Rule::Slope(difference));
      }
    }
  });
  result.sum = fixed_sum<double>(positions, [&](Index r) { return row_loss[r]; });
  return result;
}

}  // namespace

LossSum& LossSum::operator+=(const LossSum& other) {
  sum += other.sum;
  weight += other.weight;
  scored += other.scored;
  correct += other.correct;
  return *this;
}

LossSum cross_entropy(int threads, Index positions, Index classes, const float* logits, const std::int32_t* labels,
                      float* gradient, const LossScratch& scratch) {
  LossSum result;
  for (Index r = 0; r < positions; ++r) {
    require(labels[r] >= -1 && labels[r] < classes, "label {} is outside -1..{}", labels[r], classes - 1);
    result.scored += labels[r] >= 0 ? 1 : 0;
  }
  result.weight = static_cast<double>(result.scored);
  const float scale = result.scored > 0 ? 1.0f / static_cast<float>(result.scored) : 0.0f;
  double* const row_loss = scratch.row_loss;
  bool* const row_correct = scratch.row_correct;
  const cpu::ElementKernels<float> kernels = cpu::element_kernels<float>();
  for_range(threads, positions, 8 * classes, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      float* const row_gradient = gradient ? gradient + r * classes : nullptr;
      RowLoss row{0.0, false};
      if (labels[r] >= 0) {
        row = cross_entropy_row(kernels, classes, logits + r * classes, labels[r], scale, row_gradient);
      } else if (row_gradient) {
        std::fill_n(row_gradient, classes, 0.0f);
      }
      row_loss[r] = row.loss;
      row_correct[r] = row.correct;
    }
  });
  result.sum = fixed_sum<double>(positions, [&](Index r) { return row_loss[r]; });
  result.correct = std::count(row_correct, row_correct + positions, true);
  return result;
}

LossSum regression_loss(LossKind kind, int threads, const Regression& batch, float* gradient,
                        const LossScratch& scratch) {
  return with_rule(
      kind, [&](auto rule, const char*) { return regression<decltype(rule)>(threads, batch, gradient, scratch); });
}

}  // namespace penstock::ops
