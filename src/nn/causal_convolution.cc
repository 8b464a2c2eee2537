#include "nn/causal_convolution.h"

#include <algorithm>
#include <cmath>

#include "nn/elementwise.h"

namespace penstock::nn {

namespace {

/// Whether row b's sequence is restarted at one of the steps t - back + 1 .. t.
bool restarted(const Batch& batch, Index b, Index t, Index back) {
  if (!batch.reset) return false;
  const std::uint8_t* const reset = batch.reset + b * batch.steps;
  for (Index s = std::max<Index>(t - back + 1, 0); s <= t; ++s) {
    if (reset[s]) return true;
  }
  return false;
}

}  // namespace

template <class Real>
CausalConvolution<Real>::CausalConvolution(ParameterLayout& layout, const std::string& name, Index width, Index taps)
    : width_(width),
      taps_(taps),
      weight_offset_(layout.add(name + ".weight", {taps, width}, false)),
      bias_offset_(layout.add(name + ".bias", {width}, false)),
      zeros_(static_cast<std::size_t>(width), Real(0)) {}

template <class Real>
void CausalConvolution<Real>::bind(const Real* values, Real* gradients) {
  weight_ = values + weight_offset_;
  bias_ = values + bias_offset_;
  weight_gradient_ = gradients ? gradients + weight_offset_ : nullptr;
  bias_gradient_ = gradients ? gradients + bias_offset_ : nullptr;
}

template <class Real>
void CausalConvolution<Real>::initialise(Real* values, Random& random) const {
  // The current step passes through and the older ones add a little: the block starts as the one without a
  // convolution and learns from there how far to look back.
  const double bound = 0.5 / std::sqrt(static_cast<double>(taps_));
  for (Index j = 0; j < taps_; ++j) {
    for (Index c = 0; c < width_; ++c) {
      values[weight_offset_ + j * width_ + c] = static_cast<Real>((j == 0 ? 1.0 : 0.0) + random.uniform(-bound, bound));
    }
  }
  std::fill_n(values + bias_offset_, width_, Real(0));
}

template <class Real>
const Real* CausalConvolution<Real>::source(const Batch& batch, const Real* x, const Real* state, Index b, Index t,
                                            Index back) const {
  if (restarted(batch, b, t, back)) return zeros_.data();
  if (t >= back) return x + (b * batch.steps + t - back) * width_;
  return state + (b * (taps_ - 1) + taps_ - 1 + t - back) * width_;
}

template <class Real>
void CausalConvolution<Real>::update_state(const Batch& batch, const Real* x, Index b, Real* state) const {
  const Index length = row_length(batch, b);
  if (length == 0) return;
  Real* const row_state = state + b * (taps_ - 1) * width_;
  // From the oldest on: a value that is read from the old state lies behind those already overwritten.
  for (Index i = 0; i < taps_ - 1; ++i) {
    const Real* const from = source(batch, x, state, b, length - 1, taps_ - 2 - i);
    std::copy_n(from, width_, row_state + i * width_);
  }
}

template <class Real>
void CausalConvolution<Real>::weigh(const Batch& batch, const Real* x, const Real* state, Index b, Index t,
                                    Real* y) const {
  std::copy_n(bias_, width_, y);
  for (Index j = 0; j < taps_; ++j) {
    const Real* const w = weight_ + j * width_;
    const Real* const in = source(batch, x, state, b, t, j);
    for (Index c = 0; c < width_; ++c) y[c] += w[c] * in[c];
  }
}

template <class Real>
void CausalConvolution<Real>::step(const Real* x, Real* y, Real* state) {
  constexpr Batch one;
  weigh(one, x, state, 0, 0, y);
  update_state(one, x, 0, state);
}

template <class Real>
void CausalConvolution<Real>::forward(const Pass& pass, const Real* x, Real* y, Real* state) {
  const Batch& batch = pass.batch;
  if (pass.training) {
    Real* const kept = pass.arena->take<Real>(batch.rows * state_size());
    std::copy_n(state, batch.rows * state_size(), kept);
    x_ = x;
    state_in_ = kept;
  }
  for_rows(pass.execution, pass.rows(), taps_ * width_, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index b = r / batch.steps, t = r % batch.steps;
      Real* const out = y + r * width_;
      if (t >= row_length(batch, b)) {
        std::fill_n(out, width_, Real(0));
        continue;
      }
      weigh(batch, x, state, b, t, out);
    }
  });
  for (Index b = 0; b < batch.rows; ++b) update_state(batch, x, b, state);
}

template <class Real>
void CausalConvolution<Real>::add_weight_gradients(const Pass& pass, const Real* dy) const {
  const Arena::Scope scope(*pass.arena);
  const Batch& batch = pass.batch;
  const Index rows = pass.rows();
  const Index parts = (rows + rows_per_part - 1) / rows_per_part;
  const Index size = (taps_ + 1) * width_;  // of one part: the weights', then the bias's
  Real* const partial = pass.arena->take<Real>(parts * size);
  for_rows(pass.execution, parts, rows_per_part * size, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const sum = partial + part * size;
      std::fill_n(sum, size, Real(0));
      for (Index r = part * rows_per_part; r < std::min(rows, (part + 1) * rows_per_part); ++r) {
        const Index b = r / batch.steps, t = r % batch.steps;
        if (t >= row_length(batch, b)) continue;
        const Real* const d = dy + r * width_;
        for (Index j = 0; j < taps_; ++j) {
          const Real* const in = source(batch, x_, state_in_, b, t, j);
          for (Index c = 0; c < width_; ++c) sum[j * width_ + c] += d[c] * in[c];
        }
        for (Index c = 0; c < width_; ++c) sum[taps_ * width_ + c] += d[c];
      }
    }
  });
  for (Index part = 0; part < parts; ++part) {
    add_partial_sums(1, taps_ * width_, partial + part * size, weight_gradient_);
    add_partial_sums(1, width_, partial + part * size + taps_ * width_, bias_gradient_);
  }
}

template <class Real>
void CausalConvolution<Real>::backward(const Pass& pass, const Real* dy, Real* dx) {
  add_weight_gradients(pass, dy);
  if (!dx) return;
  const Batch& batch = pass.batch;
  for_rows(pass.execution, pass.rows(), taps_ * width_, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index b = r / batch.steps, t = r % batch.steps;
      Real* const out = dx + r * width_;
      std::fill_n(out, width_, Real(0));
      const Index length = row_length(batch, b);
      for (Index j = 0; j < taps_ && t + j < length && !restarted(batch, b, t + j, j); ++j) {
        const Real* const w = weight_ + j * width_;
        const Real* const d = dy + (r + j) * width_;
        for (Index c = 0; c < width_; ++c) out[c] += w[c] * d[c];
      }
    }
  });
}

template class CausalConvolution<float>;
template class CausalConvolution<double>;

}  // namespace penstock::nn
