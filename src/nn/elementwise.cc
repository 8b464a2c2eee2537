#include "nn/elementwise.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace penstock::nn {

namespace {

constexpr Index values_per_part = 16384;  // of a sum of squares; fixed for the same reason as rows_per_part

template <class Real>
bool part_finite(const Real* x, Index begin, Index end) {
  using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits exponent = sizeof(Real) == 4 ? Bits{0x7f800000} : static_cast<Bits>(0x7ff0000000000000ULL);
  Bits bad = 0;
  for (Index i = begin; i < end; ++i) bad |= (std::bit_cast<Bits>(x[i]) & exponent) == exponent ? 1 : 0;
  return bad == 0;
}

}  // namespace

template <class Real>
void fill_rows(const Execution& execution, Index rows, Index width, const Real* row, Real* y) {
  for_rows(execution, rows, width, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) std::copy_n(row, width, y + r * width);
  });
}

template <class Real>
void add_partial_sums(Index parts, Index width, const Real* partial, Real* sums) {
  for (Index part = 0; part < parts; ++part) {
    for (Index c = 0; c < width; ++c) sums[c] += partial[part * width + c];
  }
}

template <class Real>
void add_column_sums(const Execution& execution, Index rows, Index width, const Real* x, Real* sums, Arena& arena) {
  const Arena::Scope scope(arena);
  const Index parts = (rows + rows_per_part - 1) / rows_per_part;
  Real* const partial = arena.take<Real>(parts * width);
  for_rows(execution, parts, rows_per_part * width, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const sum = partial + part * width;
      std::fill_n(sum, width, Real(0));
      for (Index r = part * rows_per_part; r < std::min(rows, (part + 1) * rows_per_part); ++r) {
        const Real* const row = x + r * width;
        for (Index c = 0; c < width; ++c) sum[c] += row[c];
      }
    }
  });
  add_partial_sums(parts, width, partial, sums);
}

template <class Real>
void add(const Execution& execution, Index n, const Real* a, const Real* b, Real* y) {
  for_rows(execution, n, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) y[i] = a[i] + b[i];
  });
}

template <class Real>
void silu_gate(const Execution& execution, Index rows, Index inner, const Real* gv, Real* y) {
  const cpu::ElementKernels<Real> kernels = cpu::element_kernels<Real>();
  for_rows(execution, rows, 8 * inner, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) kernels.silu_gate(inner, gv + 2 * r * inner, y + r * inner);
  });
}

template <class Real>
void silu_gate_backward(const Execution& execution, Index rows, Index inner, const Real* gv, const Real* dy,
                        Real* dgv) {
  const cpu::ElementKernels<Real> kernels = cpu::element_kernels<Real>();
  for_rows(execution, rows, 8 * inner, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      kernels.silu_gate_backward(inner, gv + 2 * r * inner, dy + r * inner, dgv + 2 * r * inner);
    }
  });
}

template <class Real>
bool all_finite(const Execution& execution, Index n, const Real* x) {
  std::atomic<bool> finite{true};
  for_rows(execution, n, 1, [&](Index begin, Index end) {
    if (!part_finite(x, begin, end)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

template <class Real>
double sum_of_squares(const Execution& execution, Index n, const Real* x, Arena& arena) {
  const Arena::Scope scope(arena);
  const Index parts = (n + values_per_part - 1) / values_per_part;
  double* const partial = arena.take<double>(parts);
  for_rows(execution, parts, values_per_part, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      const Real* const values = x + part * values_per_part;
      partial[part] = fixed_sum<double>(std::min(values_per_part, n - part * values_per_part), [&](Index i) {
        const auto value = static_cast<double>(values[i]);
        return value * value;
      });
    }
  });
  double sum = 0.0;
  for (Index part = 0; part < parts; ++part) sum += partial[part];
  return sum;
}

#define PENSTOCK_INSTANTIATE(Real)                                                                         \
  template void fill_rows<Real>(const Execution&, Index, Index, const Real*, Real*);                       \
  template void add_column_sums<Real>(const Execution&, Index, Index, const Real*, Real*, Arena&);         \
  template void add_partial_sums<Real>(Index, Index, const Real*, Real*);                                  \
  template void add<Real>(const Execution&, Index, const Real*, const Real*, Real*);                       \
  template void silu_gate<Real>(const Execution&, Index, Index, const Real*, Real*);                       \
  template void silu_gate_backward<Real>(const Execution&, Index, Index, const Real*, const Real*, Real*); \
  template bool all_finite<Real>(const Execution&, Index, const Real*);                                    \
  template double sum_of_squares<Real>(const Execution&, Index, const Real*, Arena&);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::nn
