#pragma once

#include <vector>

#include "nn/layer.h"

namespace penstock::nn {

/// Each channel's last k inputs, weighted: y_t = bias + sum over j < k of weight[j] * x_{t-j}, with weight [k, width]
/// and bias [width]. Before the start of a sequence, and across a reset, inputs count as zero. The state of a row is
/// its last k - 1 inputs, the oldest first.
template <class Real>
class CausalConvolution final : public Layer<Real> {
 public:
  CausalConvolution(ParameterLayout& layout, const std::string& name, Index width, Index taps);

  Index inputs() const override { return width_; }
  Index outputs() const override { return width_; }
  Index state_size() const override { return (taps_ - 1) * width_; }
  void bind(const Real* values, Real* gradients) override;
  void initialise(Real* values, Random& random) const override;
  void forward(const Pass& pass, const Real* x, Real* y, Real* state) override;
  void prepare_step(Precision) override {}
  void step(const Real* x, Real* y, Real* state) override;
  void backward(const Pass& pass, const Real* dy, Real* dx) override;

 private:
  /// x of row b, `back` steps before step t, or the state that came in, or zeros.
  const Real* source(const Batch& batch, const Real* x, const Real* state, Index b, Index t, Index back) const;
  /// y [width] of row b, step t.
  void weigh(const Batch& batch, const Real* x, const Real* state, Index b, Index t, Real* y) const;
  void update_state(const Batch& batch, const Real* x, Index b, Real* state) const;
  void add_weight_gradients(const Pass& pass, const Real* dy) const;

  Index width_, taps_, weight_offset_, bias_offset_;
  std::vector<Real> zeros_;  // [width]
  const Real* weight_ = nullptr;
  const Real* bias_ = nullptr;
  Real* weight_gradient_ = nullptr;
  Real* bias_gradient_ = nullptr;
  const Real* x_ = nullptr;
  const Real* state_in_ = nullptr;
};

extern template class CausalConvolution<float>;
extern template class CausalConvolution<double>;

}  // namespace penstock::nn
