#pragma once

#include "nn/layer.h"

namespace penstock::nn {

/// y = gain * x / sqrt(mean(x^2) + epsilon), row by row: gain [width], which starts at 1.
template <class Real>
class RmsNorm final : public Layer<Real> {
 public:
  static constexpr double epsilon = 1e-6;

  RmsNorm(ParameterLayout& layout, const std::string& name, Index width);

  Index inputs() const override { return width_; }
  Index outputs() const override { return width_; }
  void bind(const Real* values, Real* gradients) override;
  void initialise(Real* values, Random& random) const override;
  void forward(const Pass& pass, const Real* x, Real* y, Real* state) override;
  void prepare_step(Precision) override {}
  void step(const Real* x, Real* y, Real*) override { normalise(x, y); }
  void backward(const Pass& pass, const Real* dy, Real* dx) override { backward(pass, dy, dx, false); }
  /// With `accumulate` the gradient is added to dx, which a residual connection wants.
  void backward(const Pass& pass, const Real* dy, Real* dx, bool accumulate);

 private:
  /// One row; returns 1 / sqrt(mean(x^2) + epsilon).
  Real normalise(const Real* x, Real* y) const;

  Index width_, offset_;
  const Real* gain_ = nullptr;
  Real* gradient_ = nullptr;
  const Real* x_ = nullptr;
  Real* inverse_ = nullptr;  // [B, T] of the last training forward(): 1 / sqrt(mean(x^2) + epsilon)
};

extern template class RmsNorm<float>;
extern template class RmsNorm<double>;

}  // namespace penstock::nn
