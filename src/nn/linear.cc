#include "nn/linear.h"

#include <algorithm>
#include <cmath>

#include "nn/elementwise.h"
#include "ops/matmul.h"

namespace penstock::nn {

template <class Real>
Linear<Real>::Linear(ParameterLayout& layout, const std::string& name, Index inputs, Index outputs, double scale)
    : inputs_(inputs),
      outputs_(outputs),
      scale_(scale),
      weight_offset_(layout.add(name + ".weight", {outputs, inputs}, true)),
      bias_offset_(layout.add(name + ".bias", {outputs}, false)) {}

template <class Real>
void Linear<Real>::bind(const Real* values, Real* gradients) {
  weight_ = values + weight_offset_;
  bias_ = values + bias_offset_;
  weight_gradient_ = gradients ? gradients + weight_offset_ : nullptr;
  bias_gradient_ = gradients ? gradients + bias_offset_ : nullptr;
}

template <class Real>
void Linear<Real>::initialise(Real* values, Random& random) const {
  const double deviation = scale_ / std::sqrt(static_cast<double>(inputs_));
  for (Index i = 0; i < inputs_ * outputs_; ++i) {
    values[weight_offset_ + i] = static_cast<Real>(deviation * random.normal());
  }
  for (Index i = 0; i < outputs_; ++i) values[bias_offset_ + i] = Real(0);
}

template <class Real>
void Linear<Real>::forward(const Pass& pass, const Real* x, Real* y, Real*) {
  fill_rows(pass.execution, pass.rows(), outputs_, bias_, y);
  ops::matmul<Real>(pass.rows(), outputs_, inputs_, {x, inputs_}, {weight_, inputs_, true}, Real(1), y, outputs_,
                    pass.execution);
  if (pass.training) x_ = x;
}

template <class Real>
void Linear<Real>::prepare_step(Precision) {
  kernels_ = cpu::product_kernels<Real>();
}

template <class Real>
void Linear<Real>::step(const Real* x, Real* y, Real*) {
  std::copy_n(bias_, outputs_, y);
  if (inputs_ == 1) {  // the weights are one row as much as one column, and as a row fill whole vectors
    return kernels_.rows_times_columns(0, 1, outputs_, 1, x, 1, 1, weight_, outputs_, Real(1), y, outputs_);
  }
  kernels_.rows_times_rows(0, 1, outputs_, inputs_, x, inputs_, weight_, inputs_, Real(1), y, outputs_);
}

template <class Real>
void Linear<Real>::backward(const Pass& pass, const Real* dy, Real* dx) {
  ops::matmul<Real>(outputs_, inputs_, pass.rows(), {dy, outputs_, true}, {x_, inputs_}, Real(1), weight_gradient_,
                    inputs_, pass.execution);
  add_column_sums(pass.execution, pass.rows(), outputs_, dy, bias_gradient_, *pass.arena);
  if (dx) {
    ops::matmul<Real>(pass.rows(), inputs_, outputs_, {dy, outputs_}, {weight_, inputs_}, Real(0), dx, inputs_,
                      pass.execution);
  }
}

template class Linear<float>;
template class Linear<double>;

}  // namespace penstock::nn
