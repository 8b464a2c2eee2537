#include "ops/pointwise/elementwise.h"

#include <atomic>
#include <bit>
#include <cstdint>

namespace penstock::ops {

namespace {

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
void fill_rows(int threads, Index rows, Index width, const Real* row, Real* y) {
  for_range(threads, rows, width, [&](Index begin, Index end) {
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
void add_column_sums(int threads, Index rows, Index width, const Real* x, Real* sums, Real* partial) {
  const Index parts = gradient_parts(rows);
  for_range(threads, parts, positions_per_part * width, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const sum = partial + part * width;
      std::fill_n(sum, width, Real(0));
      for (Index r = part * positions_per_part; r < std::min(rows, (part + 1) * positions_per_part); ++r) {
        const Real* const row = x + r * width;
        for (Index c = 0; c < width; ++c) sum[c] += row[c];
      }
    }
  });
  add_partial_sums(parts, width, partial, sums);
}

template <class Real>
bool all_finite(int threads, Index n, const Real* x) {
  std::atomic<bool> finite{true};
  for_range(threads, n, 1, [&](Index begin, Index end) {
    if (!part_finite(x, begin, end)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

template <class Real>
double sum_of_squares(int threads, Index n, const Real* x, double* partial) {
  const Index parts = square_parts(n);
  for_range(threads, parts, squares_per_part, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      const Real* const values = x + part * squares_per_part;
      partial[part] = fixed_sum<double>(std::min(squares_per_part, n - part * squares_per_part), [&](Index i) {
        const auto value = static_cast<double>(values[i]);
        return value * value;
      });
    }
  });
  double sum = 0.0;
  for (Index part = 0; part < parts; ++part) sum += partial[part];
  return sum;
}

#define PENSTOCK_INSTANTIATE(Real)                                                   \
  template void fill_rows<Real>(int, Index, Index, const Real*, Real*);              \
  template void add_column_sums<Real>(int, Index, Index, const Real*, Real*, Real*); \
  template void add_partial_sums<Real>(Index, Index, const Real*, Real*);            \
  template bool all_finite<Real>(int, Index, const Real*);                           \
  template double sum_of_squares<Real>(int, Index, const Real*, double*);
PENSTOCK_INSTANTIATE(float)
PENSTOCK_INSTANTIATE(double)
#undef PENSTOCK_INSTANTIATE

}  // namespace penstock::ops
