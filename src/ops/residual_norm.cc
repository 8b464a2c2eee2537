#include "ops/residual_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/ops.h"
#include "ops/elementwise.h"

namespace penstock::ops {

namespace {

/// y = gain * x / sqrt(mean(x^2) + epsilon) of one row; returns the factor of x.
template <class Real>
Real normalise(Index width, const Real* x, const Real* gain, Real* y) {
  const Real squares = fixed_sum<Real>(width, [&](Index c) { return x[c] * x[c]; });
  const Real scale = Real(1) / std::sqrt(squares / static_cast<Real>(width) + static_cast<Real>(ResidualNorm::epsilon));
  for (Index c = 0; c < width; ++c) y[c] = gain[c] * (x[c] * scale);
  return scale;
}

/// One row of the backward pass. With n = x * inverse: dx = inverse * (gain dy - n mean(gain dy n)), dgain += dy n.
template <class Real>
void backward_row(Index width, const Real* x, Real inverse, const Real* gain, const Real* dy, const Real* dsum,
                  Real* dgain, Real* dx) {
  const Real dot = fixed_sum<Real>(width, [&](Index c) { return gain[c] * dy[c] * x[c]; });
  const Real pull = dot * inverse * inverse * inverse / static_cast<Real>(width);
  for (Index c = 0; c < width; ++c) dgain[c] += dy[c] * x[c] * inverse;
  if (dsum != nullptr) {
    for (Index c = 0; c < width; ++c) dx[c] = dsum[c] + (inverse * gain[c] * dy[c] - pull * x[c]);
  } else {
    for (Index c = 0; c < width; ++c) dx[c] = inverse * gain[c] * dy[c] - pull * x[c];
  }
}

template <class Real>
void forward(const ResidualNorm& shape, bool drops, const Call& call, const Operands& memory) {
  const Index width = shape.width;
  const auto* const x = memory.get<const Real>(0);
  const auto* const branch = memory.get<const Real>(1);
  const auto* const gain = memory.get<const Real>(2);
  auto* const normal = memory.get<Real>(3);
  auto* const sum = memory.get<Real>(4);
  auto* const inverse = memory.get<Real>(5);
  const DropoutMask mask(shape.dropout, call.device_seed != nullptr ? *call.device_seed : call.seed);
  const Real kept = static_cast<Real>(shape.dropout.scale());
  for_range(call.threads, call.batch.rows * call.batch.steps, (drops ? 5 : 2) * width, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index first = r * width;
      const Real* row = x + first;
      if (branch != nullptr) {
        if (drops) {
          for (Index i = first; i < first + width; ++i) sum[i] = mask.keeps(i) ? x[i] + kept * branch[i] : x[i];
        } else {
          for (Index i = first; i < first + width; ++i) sum[i] = x[i] + branch[i];
        }
        row = sum + first;
      }
      const Real scale = normalise(width, row, gain, normal + first);
      if (inverse != nullptr) inverse[r] = scale;
    }
  });
}

template <class Real>
void backward(const ResidualNorm& shape, bool drops, const Call& call, const Operands& memory) {
  const Index width = shape.width, positions = call.batch.rows * call.batch.steps;
  const auto* const sum = memory.get<const Real>(0);
  const auto* const inverse = memory.get<const Real>(1);
  const auto* const gain = memory.get<const Real>(2);
  const auto* const dnormal = memory.get<const Real>(3);
  const auto* const dsum = memory.get<const Real>(4);
  auto* const dgain = memory.get<Real>(5);
  auto* const dx = memory.get<Real>(6);
  auto* const dbranch = memory.get<Real>(7);
  const DropoutMask mask(shape.dropout, call.device_seed != nullptr ? *call.device_seed : call.seed);
  const Real kept = static_cast<Real>(shape.dropout.scale());
  const Index parts = gradient_parts(positions);
  auto* const partial = static_cast<Real*>(memory.scratch);
  for_range(call.threads, parts, 2 * positions_per_part * width, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const gain_sums = partial + part * width;
      std::fill_n(gain_sums, width, Real(0));
      for (Index r = part * positions_per_part; r < std::min(positions, (part + 1) * positions_per_part); ++r) {
        const Index first = r * width;
        backward_row(width, sum + first, inverse[r], gain, dnormal + first, dsum ? dsum + first : nullptr, gain_sums,
                     dx + first);
        if (!drops) continue;
        for (Index i = first; i < first + width; ++i) dbranch[i] = mask.keeps(i) ? kept * dx[i] : Real(0);
      }
    }
  });
  std::fill_n(dgain, width, Real(0));
  add_partial_sums(parts, width, partial, dgain);
  if (auto* const sums = memory.get<Real>(8)) {
    column_sums(call.threads, positions, width, drops ? dbranch : dx, sums, partial);
  }
}

}  // namespace

Op residual_norm_forward(const ResidualNorm& shape) {
  return {shape.branch ? "residual_norm" : "norm", [shape](const Target& target) {
            if (target.device.is_cuda()) return cuda_residual_norm_forward(shape, target);
            return with_real(target.dtype, [&](auto real) {
              return simple([shape, drops = shape.drops(target)](const Call& call, const Operands& memory) {
                forward<decltype(real)>(shape, drops, call, memory);
              });
            });
          }};
}

Op residual_norm_backward(const ResidualNorm& shape, bool wants_sums) {
  return {shape.branch ? "residual_norm.backward" : "norm.backward", [shape, wants_sums](const Target& target) {
            if (target.device.is_cuda()) return cuda_residual_norm_backward(shape, wants_sums, target);
            const auto scratch =
                static_cast<std::size_t>(gradient_parts(target.positions()) * shape.width) * size_of(target.dtype);
            return with_real(target.dtype, [&](auto real) {
              return simple(
                  [shape, drops = shape.drops(target)](const Call& call, const Operands& memory) {
                    backward<decltype(real)>(shape, drops, call, memory);
                  },
                  scratch);
            });
          }};
}

}  // namespace penstock::ops
