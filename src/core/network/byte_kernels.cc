// Products of bytes, where a chip makes them faster than those of floats. The C runtime has none: its products of
// floats have the same results, as long as the sums are integers that floats hold.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/byte_kernels.cc"

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "network/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_INT8_DOT
#define PENSTOCK_INT8_DOT 1
#include "backend/cpu/int8_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_INT8_PRODUCTS || HWY_TARGET == HWY_AVX2

namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_int8.inl"

using network::ByteProduct;

constexpr int kVectors = 4;
constexpr Index kWidth = kVectors * Simd::lanes;
/// Rows whose sums fit registers.
constexpr int kMostRows = HWY_TARGET == HWY_AVX2 ? 2 : 4;

/// Returns how many groups of four bytes each column of a panel has. The last one holds the sum of the column.
Index QuadsOf(Index inner) { return (inner + 3) / 4 + 1; }

Index BytePanels(Index inner, Index columns) { return (columns + kWidth - 1) / kWidth * kWidth * QuadsOf(inner); }

void PackBytes(Index inner, Index columns, const float* weights, float* to) {
  std::int8_t quad[4];
  for (Index first = 0; first < columns; first += kWidth) {
    std::int32_t sums[kWidth] = {};
    for (Index k = 0; k < inner; k += 4) {
      for (Index at = 0; at < kWidth; ++at) {
        for (Index i = 0; i < 4; ++i) {
          const bool there = k + i < inner && first + at < columns;
          const int value = there ? static_cast<int>(weights[(first + at) * inner + k + i]) : 0;
          quad[i] = std::bit_cast<std::int8_t>(static_cast<std::uint8_t>(value + kInt8Offset));
          sums[at] += value;
        }
        std::memcpy(to++, quad, sizeof(quad));
      }
    }
    std::memcpy(to, sums, sizeof(sums));
    to += kWidth;
  }
}

template <int rows>
HWY_NOINLINE void MultiplyByteTile(const ByteProduct& job, Index row, Index column) {
  const Index quads = QuadsOf(job.inner) - 1;
  const auto* from = reinterpret_cast<const Int8Weight*>(job.panels + column * (quads + 1));
  const std::int8_t* const a = job.a + row * job.a_stride;
  Accumulator sum[rows][kVectors];
  for (int m = 0; m < rows; ++m) {
    for (int v = 0; v < kVectors; ++v) sum[m][v] = ZeroSums();
  }
  for (Index q = 0; q < quads; ++q, from += 4 * kWidth) {
    WeightQuads w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = LoadQuads(from + 4 * v * Simd::lanes);
    for (int m = 0; m < rows; ++m) {
      const InputQuad x = LoadQuad(a + m * job.a_stride + 4 * q);
      for (int v = 0; v < kVectors; ++v) sum[m][v] = AccumulatorOf(AddQuads(x, w[v], SumsOf(sum[m][v])));
    }
  }
  const hn::RebindToSigned<Simd::Tag> di;
  const auto* const of_columns = reinterpret_cast<const std::int32_t*>(from);
  for (int v = 0; v < kVectors; ++v) {
    const Index at = column + v * Simd::lanes, count = std::min<Index>(Simd::lanes, job.columns - at);
    if (count <= 0) return;
    const Simd scale = Lanes<float>::load(job.column_scale + at, count);
    const Simd bias = Lanes<float>::load(job.column_bias + at, count);
    const Sums32 of_column = hn::LoadU(di, of_columns + v * Simd::lanes);
    for (int m = 0; m < rows; ++m) {
      const ByteProduct::Row& its = job.of_rows[row + m];
      const Sums32 shift = hn::Mul(of_column, hn::Set(di, its.shift));
      const Sums32 offset = hn::Set(di, kInt8Offset * its.sum - its.more);
      const Simd total(hn::ConvertTo(Simd::Tag(), hn::Add(SumsOf(sum[m][v]), hn::Sub(shift, offset))));
      Lanes<float>::store(bias + total * (Simd(its.scale) * scale), job.c + (row + m) * job.c_stride + at, count);
    }
  }
}

template <int rows = kMostRows>
HWY_INLINE void MultiplyByteRows(const ByteProduct& job, Index row, Index column) {
  if constexpr (rows == 1) {
    MultiplyByteTile<1>(job, row, column);
  } else {
    if (job.rows - row >= rows) return MultiplyByteTile<rows>(job, row, column);
    MultiplyByteRows<rows - 1>(job, row, column);
  }
}

void MultiplyBytes(const ByteProduct& job) {
  for (Index column = 0; column < job.columns; column += kWidth) {
    for (Index row = 0; row < job.rows; row += kMostRows) MultiplyByteRows(job, row, column);
  }
}

#if PENSTOCK_INT8_PRODUCTS
void RoundToBytes(float scale, float zero, Index n, const float* x, std::int8_t* y) {
  const Simd::Tag d;
  const hn::Rebind<std::int8_t, Simd::Tag> bytes;
  const auto divisor = hn::Set(d, scale), least = hn::Set(d, -zero), most = hn::Set(d, 255.0f - zero);
  const auto offset = hn::Set(d, zero - 128.0f);
  const auto rounded = [&](auto v) HWY_ATTR {
    v = hn::Round(hn::Div(v, divisor));
    v = hn::Clamp(hn::IfThenElseZero(hn::Eq(v, v), v), least, most);
    return hn::DemoteTo(bytes, hn::ConvertTo(hn::RebindToSigned<Simd::Tag>(), hn::Add(v, offset)));
  };
  Index i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) hn::StoreU(rounded(hn::LoadU(d, x + i)), bytes, y + i);
  if (i == n) return;
  alignas(64) float rest[Simd::lanes] = {};
  alignas(64) std::int8_t of_rest[Simd::lanes];
  std::copy_n(x + i, n - i, rest);
  hn::Store(rounded(hn::Load(d, rest)), bytes, of_rest);
  std::copy_n(of_rest, n - i, y + i);
}
#endif

void FindRange(Index n, const float* x, float* low, float* high) {
  const Simd::Tag d;
  auto least = hn::Zero(d), most = hn::Zero(d), others = hn::Zero(d);
  for (Index i = 0; i < n; i += Simd::lanes) {
    const auto v = Lanes<float>::load(x + i, std::min<Index>(Simd::lanes, n - i)).raw;
    least = hn::Min(least, v), most = hn::Max(most, v);
    others = hn::MulAdd(v, hn::Zero(d), others);  // NaN if a number is not finite
  }
  *low = hn::GetLane(hn::MinOfLanes(d, least));
  const bool finite = hn::AllTrue(d, hn::Eq(others, others));
  *high = finite ? hn::GetLane(hn::MaxOfLanes(d, most)) : std::numeric_limits<float>::infinity();
}

std::int32_t RoundRange(Index n, const float* x, float inverse, std::int32_t offset, std::int8_t* y) {
  const Simd::Tag d;
  const hn::RebindToSigned<Simd::Tag> di;
  const hn::Rebind<std::int8_t, Simd::Tag> bytes;
  const auto factor = hn::Set(d, inverse);
  const Sums32 shift = hn::Set(di, offset), most = hn::Set(di, 127);
  Sums32 total = hn::Zero(di);
  const auto rounded = [&](auto v)
                           HWY_ATTR { return hn::Min(hn::Add(hn::NearestInt(hn::Mul(v, factor)), shift), most); };
  Index i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) {
    const Sums32 levels = rounded(hn::LoadU(d, x + i));
    total = hn::Add(total, levels);
    hn::StoreU(hn::DemoteTo(bytes, levels), bytes, y + i);
  }
  auto sum = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(di, total)));
  if (i == n) return static_cast<std::int32_t>(sum);
  alignas(64) std::int8_t rest[Simd::lanes];
  hn::Store(hn::DemoteTo(bytes, rounded(Lanes<float>::load(x + i, n - i).raw)), bytes, rest);
  for (Index k = 0; i < n; ++i, ++k) sum += static_cast<std::uint32_t>(y[i] = rest[k]);
  return static_cast<std::int32_t>(sum);
}

/// In blocks of 4 x 4.
void Transpose(Index rows, Index columns, const float* x, Index x_stride, float* y, Index y_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  const Index whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (Index row = 0; row < whole_rows; row += 4) {
    for (Index column = 0; column < whole_columns; column += 4) {
      const float* const from = x + row * x_stride + column;
      float* const to = y + column * y_stride + row;
      const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + x_stride);
      const auto r2 = hn::LoadU(d, from + 2 * x_stride), r3 = hn::LoadU(d, from + 3 * x_stride);
      const auto low0 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto low2 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto high0 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto high2 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low0, low2)), d, to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low0, low2)), d, to + y_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high0, high2)), d, to + 2 * y_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high0, high2)), d, to + 3 * y_stride);
    }
  }
  for (Index row = 0; row < rows; ++row) {
    const Index begin = row < whole_rows ? whole_columns : 0;
    for (Index column = begin; column < columns; ++column) y[column * y_stride + row] = x[row * x_stride + column];
  }
}

}  // namespace

void FillByteKernels(network::Kernels& kernels) {
  if (PENSTOCK_INT8_PRODUCTS && !has_int8_products()) return;
#if PENSTOCK_INT8_PRODUCTS
  kernels.round_to_bytes = &RoundToBytes;
#endif
  kernels.find_range = &FindRange;
  kernels.round_range = &RoundRange;
  kernels.transpose = &Transpose;
  kernels.byte_panels = &BytePanels;
  kernels.pack_bytes = &PackBytes;
  kernels.multiply_bytes = &MultiplyBytes;
}

#else

void FillByteKernels(network::Kernels&) {}

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillByteKernels);

void FillByteKernelsInUse(network::Kernels& kernels) { HWY_DYNAMIC_DISPATCH(FillByteKernels)(kernels); }

}  // namespace penstock::cpu

namespace penstock::network {

void FillBytes(Kernels& kernels) { cpu::FillByteKernelsInUse(kernels); }

}  // namespace penstock::network
#endif  // HWY_ONCE
