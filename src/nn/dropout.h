#pragma once

#include "nn/layer.h"

namespace penstock::nn {

/// Zeroes values with probability p and divides the others by 1 - p. The mask is a function of the pass's dropout_seed,
/// the site and the place in the tensor, so nothing is stored and backward() draws the same one.
class Dropout {
 public:
  /// `site` tells the dropouts of a model apart.
  Dropout(double probability, std::uint64_t site) : probability_(probability), site_(site) {}

  /// Whether this pass drops anything.
  bool active(const Pass& pass) const { return pass.training && probability_ > 0.0; }
  /// y = x + dropout(branch), n values; y may be x.
  template <class Real>
  void add(const Pass& pass, Index n, const Real* x, const Real* branch, Real* y) const;
  /// dbranch = dropout's gradient of dy, n values. Only when active().
  template <class Real>
  void backward(const Pass& pass, Index n, const Real* dy, Real* dbranch) const;

 private:
  double probability_;
  std::uint64_t site_;
};

}  // namespace penstock::nn
