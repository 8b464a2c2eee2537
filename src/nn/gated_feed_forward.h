#pragma once

#include <vector>

#include "nn/linear.h"

namespace penstock::nn {

/// y = W_down (silu(g) * v) with [g, v] = W_up x: a gated feed-forward ("SwiGLU") of inner size F; W_up [2F, width],
/// W_down [width, F], both with a bias.
template <class Real>
class GatedFeedForward final : public Layer<Real> {
 public:
  /// `scale` of the fresh W_down, as in Linear.
  GatedFeedForward(ParameterLayout& layout, const std::string& name, Index width, Index inner, double scale);

  Index inputs() const override { return up_.inputs(); }
  Index outputs() const override { return down_.outputs(); }
  void bind(const Real* values, Real* gradients) override;
  void initialise(Real* values, Random& random) const override;
  void forward(const Pass& pass, const Real* x, Real* y, Real* state) override;
  void prepare_step(Precision precision) override;
  void step(const Real* x, Real* y, Real* state) override;
  void backward(const Pass& pass, const Real* dy, Real* dx) override;

 private:
  Index inner_;
  Linear<Real> up_, down_;
  Real* gate_value_ = nullptr;         // [B, T, 2F] of the last training forward()
  cpu::ElementKernels<Real> kernels_;  // of step()
  std::vector<Real> step_;             // [2F] gate and value, [F] their product
};

extern template class GatedFeedForward<float>;
extern template class GatedFeedForward<double>;

}  // namespace penstock::nn
