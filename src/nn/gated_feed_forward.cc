#include "nn/gated_feed_forward.h"

#include "nn/elementwise.h"

namespace penstock::nn {

template <class Real>
GatedFeedForward<Real>::GatedFeedForward(ParameterLayout& layout, const std::string& name, Index width, Index inner,
                                         double scale)
    : inner_(inner), up_(layout, name + ".up", width, 2 * inner), down_(layout, name + ".down", inner, width, scale) {}

template <class Real>
void GatedFeedForward<Real>::bind(const Real* values, Real* gradients) {
  up_.bind(values, gradients);
  down_.bind(values, gradients);
}

template <class Real>
void GatedFeedForward<Real>::initialise(Real* values, Random& random) const {
  up_.initialise(values, random);
  down_.initialise(values, random);
}

template <class Real>
void GatedFeedForward<Real>::forward(const Pass& pass, const Real* x, Real* y, Real*) {
  Real* const gate_value = pass.arena->take<Real>(pass.rows() * 2 * inner_);
  Real* const product = pass.arena->take<Real>(pass.rows() * inner_);
  up_.forward(pass, x, gate_value, nullptr);
  silu_gate(pass.execution, pass.rows(), inner_, gate_value, product);
  down_.forward(pass, product, y, nullptr);
  if (pass.training) gate_value_ = gate_value;
}

template <class Real>
void GatedFeedForward<Real>::prepare_step(Precision precision) {
  up_.prepare_step(precision);
  down_.prepare_step(precision);
  kernels_ = cpu::element_kernels<Real>();
  step_.resize(static_cast<std::size_t>(3 * inner_));
}

template <class Real>
void GatedFeedForward<Real>::step(const Real* x, Real* y, Real*) {
  Real* const gate_value = step_.data();
  Real* const product = gate_value + 2 * inner_;
  up_.step(x, gate_value, nullptr);
  kernels_.silu_gate(inner_, gate_value, product);
  down_.step(product, y, nullptr);
}

template <class Real>
void GatedFeedForward<Real>::backward(const Pass& pass, const Real* dy, Real* dx) {
  const Arena::Scope scope(*pass.arena);
  Real* const dproduct = pass.arena->take<Real>(pass.rows() * inner_);
  down_.backward(pass, dy, dproduct);
  // The gate and the value are needed no more; their gradients take their place.
  silu_gate_backward(pass.execution, pass.rows(), inner_, gate_value_, dproduct, gate_value_);
  up_.backward(pass, gate_value_, dx);
}

template class GatedFeedForward<float>;
template class GatedFeedForward<double>;

}  // namespace penstock::nn
