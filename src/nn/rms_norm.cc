#include "nn/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "nn/elementwise.h"

namespace penstock::nn {

namespace {

/// One row of the backward pass. With n = x * inverse: dx = inverse * (gain dy - n mean(gain dy n)), dgain += dy n.
template <class Real>
void backward_row(Index width, const Real* x, Real inverse, const Real* gain, const Real* dy, Real* dgain, Real* dx,
                  bool accumulate) {
  const Real dot = fixed_sum<Real>(width, [&](Index c) { return gain[c] * dy[c] * x[c]; });
  const Real pull = dot * inverse * inverse * inverse / static_cast<Real>(width);
  for (Index c = 0; c < width; ++c) dgain[c] += dy[c] * x[c] * inverse;
  if (accumulate) {
    for (Index c = 0; c < width; ++c) dx[c] += inverse * gain[c] * dy[c] - pull * x[c];
  } else if (dx) {
    for (Index c = 0; c < width; ++c) dx[c] = inverse * gain[c] * dy[c] - pull * x[c];
  }
}

}  // namespace

template <class Real>
RmsNorm<Real>::RmsNorm(ParameterLayout& layout, const std::string& name, Index width)
    : width_(width), offset_(layout.add(name + ".gain", {width}, false)) {}

template <class Real>
void RmsNorm<Real>::bind(const Real* values, Real* gradients) {
  gain_ = values + offset_;
  gradient_ = gradients ? gradients + offset_ : nullptr;
}

template <class Real>
void RmsNorm<Real>::initialise(Real* values, Random&) const {
  std::fill_n(values + offset_, width_, Real(1));
}

template <class Real>
Real RmsNorm<Real>::normalise(const Real* x, Real* y) const {
  const Real squares = fixed_sum<Real>(width_, [&](Index c) { return x[c] * x[c]; });
  const Real scale = Real(1) / std::sqrt(squares / static_cast<Real>(width_) + static_cast<Real>(epsilon));
  for (Index c = 0; c < width_; ++c) y[c] = gain_[c] * (x[c] * scale);
  return scale;
}

template <class Real>
void RmsNorm<Real>::forward(const Pass& pass, const Real* x, Real* y, Real*) {
  Real* const inverse = pass.training ? pass.arena->take<Real>(pass.rows()) : nullptr;
  for_rows(pass.execution, pass.rows(), 2 * width_, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Real scale = normalise(x + r * width_, y + r * width_);
      if (inverse) inverse[r] = scale;
    }
  });
  if (pass.training) {
    x_ = x;
    inverse_ = inverse;
  }
}

template <class Real>
void RmsNorm<Real>::backward(const Pass& pass, const Real* dy, Real* dx, bool accumulate) {
  const Arena::Scope scope(*pass.arena);
  const Index rows = pass.rows();
  const Index parts = (rows + rows_per_part - 1) / rows_per_part;
  Real* const partial = pass.arena->take<Real>(parts * width_);
  for_rows(pass.execution, parts, 2 * rows_per_part * width_, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const dgain = partial + part * width_;
      std::fill_n(dgain, width_, Real(0));
      for (Index r = part * rows_per_part; r < std::min(rows, (part + 1) * rows_per_part); ++r) {
        backward_row(width_, x_ + r * width_, inverse_[r], gain_, dy + r * width_, dgain,
                     dx ? dx + r * width_ : nullptr, accumulate);
      }
    }
  });
  add_partial_sums(parts, width_, partial, gradient_);
}

template class RmsNorm<float>;
template class RmsNorm<double>;

}  // namespace penstock::nn
