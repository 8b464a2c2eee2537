// Products of matrices for every instruction set: numbers of a, one by one, times vectors of a row of b. Convolutions
// are such products, too: a row of b for each channel and place in the window.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/product_kernels.cc"

#include "network/kernels.h"

#include "backend/cpu/every_target.inl"

#include "backend/cpu/dispatch_target.h"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::network::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

constexpr int kVectors = 4;
/// As many rows as leave registers for the vectors of b.
constexpr int kMostRows = HWY_TARGET == HWY_AVX3 ? 6 : 3;
constexpr float kZeros[kVectors * Lanes<float>::lanes] = {};

/// A part of the sums of some columns: where its products begin, and what its sums begin at, of rows with offsets and
/// of columns without. In the end it adds `before`, whose rows lie so far apart.
struct Part {
  Index begin = 0;
  const float* start = kZeros;
  const float* before = kZeros;
  Index stride = 0;
};

/// A part of a tile of c. A single vector may have fewer lanes.
template <int rows, int vectors, bool indirect>
HWY_NOINLINE void MultiplyTile(const Product& job, Index row, Index column, Index count, const Part& part) {
  using V = Simd;
  using L = Lanes<float>;
  V sums[rows][vectors];
  const auto last = [&](int) { return vectors == 1 ? count : L::lanes; };
  const Index begin = part.begin;
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = indirect ? V(part.start[r]) : L::load(part.start + v * L::lanes, last(v));
    }
  }
  const float* a = job.a + row * job.a_stride;
  const Index in_panel = column % (kVectors * L::lanes);
  const Index a_stride = job.a_stride, b_row = job.b_row, end = std::min(begin + kPartOfProduct, job.inner);
  const float* b = job.b + (column - in_panel) * job.b_column + in_panel + (indirect ? 0 : begin * b_row);
  const auto add = [&](const float* of_b, Index k, Index lanes) HWY_ATTR {
    V factor[vectors];
    HWY_UNROLL(4)
    for (int v = 0; v + 1 < vectors; ++v) factor[v] = L::load(of_b + v * L::lanes);
    factor[vectors - 1] = L::load(of_b + (vectors - 1) * L::lanes, lanes);
    // Unrolled, so that the sums stay in registers.
    HWY_UNROLL(6)
    for (int r = 0; r < rows; ++r) {
      const V x(a[r * a_stride + k]);
      HWY_UNROLL(4)
      for (int v = 0; v < vectors; ++v) sums[r][v] = MulAdd(x, factor[v], sums[r][v]);
    }
  };
  const auto loop = [&](Index lanes) HWY_ATTR {
    for (Index k = begin; k < end; ++k) {
      add(indirect ? b + job.offset[k] : b, k, lanes);
      if (!indirect) b += b_row;
    }
  };
  // One loop for several vectors: with two, the sums would lie on the stack in between.
  if constexpr (vectors > 1) {
    loop(L::lanes);
  } else {
    count == L::lanes ? loop(L::lanes) : loop(count);
  }
  float* c = job.c + row * job.c_stride + column;
  const float* before = part.before + row * part.stride;
  for (int r = 0; r < rows; ++r, c += job.c_stride, before += part.stride) {
    for (int v = 0; v < vectors; ++v) {
      L::store(sums[r][v] + L::load(before + v * L::lanes, last(v)), c + v * L::lanes, last(v));
    }
  }
}

/// Returns the number of rows that it computes. Five are four and one, and with such tiles three are two and one, which
/// saves the code of twelve tiles.
template <int vectors, bool indirect, int rows = kMostRows>
HWY_INLINE Index MultiplyRows(const Product& job, Index row, Index column, Index count, const Part& part) {
  if constexpr (rows > 1) {
    constexpr int fewer = rows == 6 ? 4 : rows == 4 ? 2 : rows - 1;
    if (job.rows - row < rows) {
      return MultiplyRows<vectors, indirect, fewer>(job, row, column, count, part);
    }
  }
  MultiplyTile<rows, vectors, indirect>(job, row, column, count, part);
  return rows;
}

template <int vectors, bool indirect>
HWY_INLINE void MultiplyColumns(const Product& job, Index column, Index count) {
  Index begin = indirect ? 0 : job.begin;
  do {
    Part part{.begin = begin};
    if (begin > 0) {
      part.before = job.c + column, part.stride = job.c_stride;
    } else if (!indirect && job.column_bias != nullptr) {
      // A sum of one part begins at its bias. Of several, the first ends with it.
      (job.inner <= kPartOfProduct ? part.start : part.before) = job.column_bias + column;
    }
    for (Index row = 0; row < job.rows;) {
      if (indirect && begin == 0 && job.row_bias != nullptr) part.start = job.row_bias + row;
      row += MultiplyRows<vectors, indirect>(job, row, column, count, part);
    }
    begin += kPartOfProduct;
  } while (begin < job.inner);
}

template <bool indirect>
void MultiplyAll(const Product& job) {
  constexpr Index lanes = Lanes<float>::lanes;
  constexpr Index panel = kVectors * lanes;
  const bool backwards = !indirect && job.backwards;
  Index column = job.columns / panel * panel;
  for (Index at = 0; at < column; at += panel) {
    MultiplyColumns<kVectors, indirect>(job, backwards ? column - panel - at : at, lanes);
  }
  // Panels end where the next one begins, so that what is left over lies in one.
  for (Index left = job.columns - column; left > 0;) {
    if (left >= 2 * lanes) {
      MultiplyColumns<2, indirect>(job, column, lanes);
      column += 2 * lanes, left -= 2 * lanes;
    } else {
      const Index count = std::min(lanes, left);
      MultiplyColumns<1, indirect>(job, column, count);
      column += lanes, left -= lanes;
    }
  }
}

/// One column, which lies in one piece: a sum of products for each row.
void MultiplyColumn(const Product& job) {
  using V = Simd;
  using L = Lanes<float>;
  const float bias = job.column_bias != nullptr ? *job.column_bias : 0.0f;
  for (Index row = 0; row < job.rows; ++row) {
    const float* const a = job.a + row * job.a_stride;
    V sum(0.0f);
    for (Index k = 0; k < job.inner; k += L::lanes) {
      const Index count = std::min<Index>(L::lanes, job.inner - k);
      sum = MulAdd(L::load(a + k, count), L::load(job.b + k, count), sum);
    }
    job.c[row * job.c_stride] = L::sum(sum) + bias;
  }
}

/// Products of one row each, which have too few columns for tiles.
void MultiplyGroups(const Product& job) {
  using V = Simd;
  using L = Lanes<float>;
  const float *a = job.a, *b = job.b;
  float* c = job.c;
  for (Index group = 0; group < job.groups; ++group, a += job.inner, b += job.b_group, c += job.columns) {
    const V bias(job.row_bias != nullptr ? job.row_bias[group] : 0.0f);
    for (Index column = 0; column < job.columns; column += L::lanes) {
      const Index count = std::min<Index>(L::lanes, job.columns - column);
      V sum = bias;
      for (Index k = 0; k < job.inner; ++k) sum = MulAdd(V(a[k]), L::load(b + job.offset[k] + column, count), sum);
      L::store(sum + V(0.0f), c + column, count);  // as the last part of a tile: no sum is -0
    }
  }
}

void RunMultiply(const Product& job) {
  if (job.groups > 1) return MultiplyGroups(job);
  if (job.columns == 1 && job.offset == nullptr && job.b_row == 1) return MultiplyColumn(job);
  job.offset != nullptr ? MultiplyAll<true>(job) : MultiplyAll<false>(job);
}

/// Vectors of up to four rows or columns of tiles. A constructor that is only implied would be compiled for no
/// instruction set in particular, and g++ refuses to inline into that.
struct Four {
  Simd v[4];

  HWY_INLINE Four() = default;
  HWY_INLINE Four(Simd a, Simd b, Simd c, Simd d) : v{a, b, c, d} {}
};

HWY_INLINE Four ToFactors(const Four& d) {
  return {d.v[0] - d.v[2], d.v[1] + d.v[2], d.v[2] - d.v[1], d.v[1] - d.v[3]};
}

void ToTiles(Index n, const float* planes, Index plane, Index row, float* to, Index apart) {
  using L = Lanes<float>;
  for (Index at = 0; at < n; at += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - at);
    Four columns[4], rows[4];
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
      HWY_UNROLL(4)
      for (int r = 0; r < 4; ++r) {
        columns[c].v[r] = L::load(planes + at + (r % 2 * 2 + c % 2) * plane + r / 2 * row + c / 2, count);
      }
      columns[c] = ToFactors(columns[c]);
    }
    HWY_UNROLL(4)
    for (int r = 0; r < 4; ++r) {
      rows[r] = ToFactors({columns[0].v[r], columns[1].v[r], columns[2].v[r], columns[3].v[r]});
      HWY_UNROLL(4)
      for (int c = 0; c < 4; ++c) L::store(rows[r].v[c], to + at + (4 * r + c) * apart, count);
    }
  }
}

void FromTiles(Index n, const float* products, Index apart, float bias, float* upper, float* lower) {
  using L = Lanes<float>;
  for (Index at = 0; at < n; at += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - at);
    Simd high[4], low[4];
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
      const auto product = [&](int r) HWY_ATTR { return L::load(products + at + (4 * r + c) * apart, count); };
      const Simd second = product(1), third = product(2);
      high[c] = product(0) + second + third, low[c] = second - third - product(3);
    }
    const Simd start(bias);
    const auto store = [&](const Simd(&of)[4], float* y) HWY_ATTR {
      const Simd left = of[0] + of[1] + of[2] + start, right = of[1] - of[2] - of[3] + start;
      hn::StoreInterleaved2(left.raw, right.raw, Simd::Tag(), y + 2 * at);
    };
    store(high, upper);
    store(low, lower);
  }
}

}  // namespace

void FillProductKernels(Kernels& kernels) {
  kernels.multiply = &RunMultiply;
  kernels.to_tiles = &ToTiles;
  kernels.from_tiles = &FromTiles;
  kernels.panel_columns = kVectors * Lanes<float>::lanes;
}

}  // namespace penstock::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::network {

PENSTOCK_EXPORT(FillProductKernels);

void FillProducts(Kernels& kernels) { PENSTOCK_DISPATCH(FillProductKernels)(kernels); }

}  // namespace penstock::network
#endif  // HWY_ONCE
