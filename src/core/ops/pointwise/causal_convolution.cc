#include "ops/pointwise/causal_convolution.h"

#include <algorithm>

#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

/// How many steps before step t of row b its sequence began, `most` if that is longer ago.
Index steps_since_restart(const Batch& batch, bool has_state, Index b, Index t, Index most) {
  if (!has_state) most = std::min(most, t);
  if (!batch.reset) return most;
  const std::uint8_t* const reset = batch.reset + b * batch.steps;
  for (Index back = 0; back < most && back <= t; ++back) {
    if (reset[t - back]) return back;
  }
  return most;
}

/// Returns whether row b's sequence is restarted at one of the steps t - back + 1 .. t.
bool restarted(const Batch& batch, Index b, Index t, Index back) {
  if (!batch.reset) return false;
  const std::uint8_t* const reset = batch.reset + b * batch.steps;
  for (Index s = std::max<Index>(t - back + 1, 0); s <= t; ++s) {
    if (reset[s]) return true;
  }
  return false;
}

/// Inputs of the taps at a position.
template <class Real>
struct Source {
  CausalConvolution shape;
  Batch batch;
  const Real* x;      // [B, T, width]
  const Real* state;  // [B, taps - 1, width]; null: zeros

  /// Taps that see something at step t.
  Index seen(Index b, Index t) const {
    return std::min(shape.taps, steps_since_restart(batch, state != nullptr, b, t, shape.taps) + 1);
  }
  /// The row `back` steps before step t; null where that lies before a restart.
  const Real* at(Index b, Index t, Index back) const {
    return restarted(batch, b, t, back) ? nullptr : before(b, t, back);
  }
  /// Returns the row `back` steps before step t, if no restart lies between.
  const Real* before(Index b, Index t, Index back) const {
    if (t >= back) return x + (b * batch.steps + t - back) * shape.width;
    return state + (b * (shape.taps - 1) + shape.taps - 1 + t - back) * shape.width;
  }
};

template <class Real>
void update_state(const Source<Real>& source, Index b, Real* state_out) {
  const Index length = row_length(source.batch, b), width = source.shape.width, kept = source.shape.taps - 1;
  Real* const out = state_out + b * kept * width;
  if (length == 0) {
    std::copy_n(source.state + b * kept * width, kept * width, out);
    return;
  }
  // From the oldest on: a value that is read from the old state lies behind those already overwritten.
  for (Index i = 0; i < kept; ++i) {
    const Real* const from = source.at(b, length - 1, kept - 1 - i);
    if (from != nullptr) {
      std::copy_n(from, width, out + i * width);
    } else {
      std::fill_n(out + i * width, width, Real(0));
    }
  }
}

template <class Real>
void forward(const CausalConvolution& shape, const Call& call, const Operands& memory) {
  using Of = ConvolutionOperand;
  const Source<Real> source{shape, call.batch, memory.get<const Real>(Of::x), memory.get<const Real>(Of::state_in)};
  const auto* const weight = memory.get<const Real>(Of::weight);
  const auto* const bias = memory.get<const Real>(Of::bias);
  auto* const y = memory.get<Real>(Of::y);
  auto* const state_out = memory.get<Real>(Of::state_out);
  const Index width = shape.width;
  for_positions(call.threads, call.batch, shape.taps * width, [&](Index r, Index b, Index t) {
    Real* const out = y + r * width;
    if (t >= row_length(call.batch, b)) {
      std::fill_n(out, width, Real(0));
      return;
    }
    std::copy_n(bias, width, out);
    const Index seen = source.seen(b, t);
    for (Index j = 0; j < seen; ++j) {
      const Real* const in = source.before(b, t, j);
      const Real* const w = weight + j * width;
      for (Index c = 0; c < width; ++c) out[c] += w[c] * in[c];
    }
  });
  if (state_out == nullptr) return;
  for (Index b = 0; b < call.batch.rows; ++b) update_state(source, b, state_out);
}

/// One partial sum of the gradients: dweight [taps, width], then dbias [width].
template <class Real>
void add_part(const Source<Real>& source, const Real* dy, Index begin, Index end, Real* sum) {
  const Index width = source.shape.width, taps = source.shape.taps;
  std::fill_n(sum, (taps + 1) * width, Real(0));
  for (Index r = begin; r < end; ++r) {
    const Index b = r / source.batch.steps, t = r % source.batch.steps;
    if (t >= row_length(source.batch, b)) continue;
    const Real* const d = dy + r * width;
    const Index seen = source.seen(b, t);
    for (Index j = 0; j < seen; ++j) {
      const Real* const in = source.before(b, t, j);
      for (Index c = 0; c < width; ++c) sum[j * width + c] += d[c] * in[c];
    }
    for (Index c = 0; c < width; ++c) sum[taps * width + c] += d[c];
  }
}

template <class Real>
void input_gradient(const CausalConvolution& shape, const Call& call, const Real* weight, const Real* dy, Real* dx) {
  const Batch& batch = call.batch;
  const Index width = shape.width;
  for_positions(call.threads, batch, shape.taps * width, [&](Index r, Index b, Index t) {
    Real* const out = dx + r * width;
    std::fill_n(out, width, Real(0));
    const Index length = row_length(batch, b);
    for (Index j = 0; j < shape.taps && t + j < length && !restarted(batch, b, t + j, j); ++j) {
      const Real* const w = weight + j * width;
      const Real* const d = dy + (r + j) * width;
      for (Index c = 0; c < width; ++c) out[c] += w[c] * d[c];
    }
  });
}

template <class Real>
void backward(const CausalConvolution& shape, const Call& call, const Operands& memory) {
  using Of = ConvolutionBackwardOperand;
  const Source<Real> source{shape, call.batch, memory.get<const Real>(Of::x), memory.get<const Real>(Of::state_in)};
  const auto* const dy = memory.get<const Real>(Of::dy);
  auto* const dweight = memory.get<Real>(Of::dweight);
  auto* const dbias = memory.get<Real>(Of::dbias);
  const Index positions = call.batch.rows * call.batch.steps, parts = gradient_parts(positions);
  const Index weights = shape.taps * shape.width, size = weights + shape.width;
  auto* const partial = static_cast<Real*>(memory.scratch);
  for_range(call.threads, parts, positions_per_part * size, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      add_part(source, dy, part * positions_per_part, std::min(positions, (part + 1) * positions_per_part),
               partial + part * size);
    }
  });
  std::fill_n(dweight, weights, Real(0));
  std::fill_n(dbias, shape.width, Real(0));
  for (Index part = 0; part < parts; ++part) {
    add_partial_sums(1, weights, partial + part * size, dweight);
    add_partial_sums(1, shape.width, partial + part * size + weights, dbias);
  }
  input_gradient(shape, call, memory.get<const Real>(Of::weight), dy, memory.get<Real>(Of::dx));
}

}  // namespace

Op causal_convolution_forward(const CausalConvolution& shape) {
  return {.name = "causal_convolution",
          .prepare = prepared_by(shape, cuda_causal_convolution_forward,
                                 [](auto real, const auto&... given) { forward<decltype(real)>(given...); }),
          .definition = shape};
}

Op causal_convolution_backward(const CausalConvolution& shape) {
  return {"causal_convolution.backward",
          prepared_by(
              shape, cuda_causal_convolution_backward,
              [](auto real, const auto&... given) { backward<decltype(real)>(given...); },
              [](const CausalConvolution& of, const Target& target) {
                return gradient_parts(target.positions()) * (of.taps + 1) * of.width;
              })};
}

}  // namespace penstock::ops
