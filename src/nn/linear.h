#pragma once

#include "backend/cpu/kernels.h"
#include "nn/layer.h"

namespace penstock::nn {

/// y = x W^T + b, row by row: weight [outputs, inputs], bias [outputs].
template <class Real>
class Linear final : public Layer<Real> {
 public:
  /// Fresh weights are normal with standard deviation scale / sqrt(inputs), which keeps the variance of normalised rows
  /// for scale 1; the bias starts at 0.
  Linear(ParameterLayout& layout, const std::string& name, Index inputs, Index outputs, double scale = 1.0);

  Index inputs() const override { return inputs_; }
  Index outputs() const override { return outputs_; }
  void bind(const Real* values, Real* gradients) override;
  void initialise(Real* values, Random& random) const override;
  void forward(const Pass& pass, const Real* x, Real* y, Real* state) override;
  void prepare_step(Precision precision) override;
  void step(const Real* x, Real* y, Real* state) override;
  void backward(const Pass& pass, const Real* dy, Real* dx) override;

 private:
  Index inputs_, outputs_;
  double scale_;
  Index weight_offset_, bias_offset_;
  const Real* weight_ = nullptr;
  const Real* bias_ = nullptr;
  Real* weight_gradient_ = nullptr;
  Real* bias_gradient_ = nullptr;
  const Real* x_ = nullptr;
  cpu::ProductKernels<Real> kernels_;  // of step()
};

extern template class Linear<float>;
extern template class Linear<double>;

}  // namespace penstock::nn
