#include "nn/recurrence.h"

#include <algorithm>
#include <cmath>

#include "nn/elementwise.h"
#include "nn/gate_bias.h"

namespace penstock::nn {

template <class Real>
Recurrence<Real>::Recurrence(ParameterLayout& layout, const std::string& name, const RecurrentLayerSpec& spec)
    : layer_(spec), shapes_(layer_.parameters()) {
  for (const auto& parameter : shapes_) {
    offsets_.push_back(layout.add(name + "." + parameter.name, parameter.shape, parameter.shape.size() > 1));
  }
}

template <class Real>
void Recurrence<Real>::bind(const Real* values, Real* gradients) {
  RecurrentWeights<Real> weights;
  gradients_ = {};
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    // RecurrentWeights serves gradients too, hence not const; the layer only reads its weights.
    weights.*shapes_[i].member = const_cast<Real*>(values) + offsets_[i];
    if (gradients) gradients_.*shapes_[i].member = gradients + offsets_[i];
  }
  layer_.set_weights(weights);
}

template <class Real>
void Recurrence<Real>::initialise(Real* values, Random& random) const {
  const Index hidden = outputs();
  const double input_deviation = 1.0 / std::sqrt(static_cast<double>(inputs()));
  const double recurrent_bound = 1.0 / std::sqrt(static_cast<double>(hidden / layer_.spec().heads));
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    Index size = 1;
    for (const Index n : shapes_[i].shape) size *= n;
    Real* const value = values + offsets_[i];
    const auto member = shapes_[i].member;
    if (member == &RecurrentWeights<Real>::weight_ih) {
      for (Index k = 0; k < size; ++k) value[k] = static_cast<Real>(input_deviation * random.normal());
    } else if (member == &RecurrentWeights<Real>::weight_hh) {
      for (Index k = 0; k < size; ++k) value[k] = static_cast<Real>(random.uniform(-recurrent_bound, recurrent_bound));
    } else {
      std::fill_n(value, size, Real(0));
      if (member == &RecurrentWeights<Real>::bias_ih) add_gate_bias(layer_.spec().cell, hidden, value);
    }
  }
}

template <class Real>
SequenceView<const Real> Recurrence<Real>::view(const Pass& pass, const Real* data, Index channels) const {
  return SequenceView<const Real>::batch_first(data, pass.batch.steps, channels);
}

template <class Real>
void Recurrence<Real>::forward(const Pass& pass, const Real* x, Real* y, Real* state) {
  Real* tape = nullptr;
  if (pass.training) {
    const Index size = pass.batch.rows * state_size();
    Real* const kept = pass.arena->take<Real>(size);
    std::copy_n(state, size, kept);
    tape = pass.arena->take<Real>(layer_.tape_size(pass.batch, pass.execution));
    x_ = x, y_ = y, state_in_ = kept, tape_ = tape;
  } else if (pass.rows() == 1 && pass.batch.lengths == nullptr && pass.batch.reset == nullptr) {
    return layer_.step(x, y, state, outputs(), pass.execution.precision);
  }
  layer_.forward(pass.batch, view(pass, x, inputs()), SequenceView<Real>::batch_first(y, pass.batch.steps, outputs()),
                 state, state, tape, pass.execution);
}

template <class Real>
void Recurrence<Real>::prepare_step(Precision precision) {
  step_precision_ = precision;
  layer_.prepare_step(precision);
}

template <class Real>
void Recurrence<Real>::step(const Real* x, Real* y, Real* state) {
  layer_.step(x, y, state, outputs(), step_precision_);
}

template <class Real>
void Recurrence<Real>::backward(const Pass& pass, const Real* dy, Real* dx) {
  const SequenceView<Real> dx_view =
      dx ? SequenceView<Real>::batch_first(dx, pass.batch.steps, inputs()) : SequenceView<Real>{};
  layer_.backward(pass.batch, view(pass, x_, inputs()), view(pass, y_, outputs()), view(pass, dy, outputs()), state_in_,
                  nullptr, dx_view, nullptr, tape_, gradients_, pass.execution);
}

template <class Real>
auto Recurrence<Real>::saturation(const Batch& batch) const -> Saturation {
  Saturation result;
  for (Index b = 0; b < batch.rows; ++b) {
    const Index count = row_length(batch, b) * outputs();
    const Real* const h = y_ + b * batch.steps * outputs();
    result.total += count;
    Index saturated = 0;
    for (Index i = 0; i < count; ++i) saturated += std::abs(h[i]) > Real(0.99) ? 1 : 0;
    result.saturated += saturated;
  }
  return result;
}

template class Recurrence<float>;
template class Recurrence<double>;

}  // namespace penstock::nn
