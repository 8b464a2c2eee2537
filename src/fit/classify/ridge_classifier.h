#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock::training {

/// Says of each class how likely it is, as logits: intercept + weights x.
struct RidgeClassifier {
  Index classes = 0, features = 0;
  std::vector<double> weights;    ///< [classes, features]
  std::vector<double> intercept;  ///< [classes]

  /// logits [classes] of x [features]
  void logits(std::span<const float> x, std::span<double> logits) const;
};

/// Mean cross-entropy of logits [n, classes].
double cross_entropy(std::span<const double> logits, std::span<const std::int32_t> labels, Index classes);

/// Regresses +1 for a sequence's class and -1 for the others on x [n, features], each feature scaled by its deviation.
/// The penalty is the one whose predictions of each row by the others (leave-one-out) are off least, and a factor makes
/// logits of these: that of the least cross-entropy. Labels are 0 .. classes - 1.
RidgeClassifier fit_ridge_classifier(std::span<const float> x, std::span<const std::int32_t> labels, Index features,
                                     Index classes, const Execution& execution);

}  // namespace penstock::training
