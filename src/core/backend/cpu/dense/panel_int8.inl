// Products with panels of int8: four inputs of a unit lie side by side in 32 bits. Operands are rounded to int8 too,
// with one scale a row. Sums of products are integers, hence exact and the same in any order; one multiplication and
// one addition, which are not fused, make floats of them. So every instruction set computes the same bits.
//
// Behind its inputs, a panel has the scale of each unit's weights and 32 bits that nobody reads; a row of operands has
// its scale and the correction of its sums.

using Sums32 = hn::Vec<hn::RebindToSigned<Simd::Tag>>;
constexpr Index kInt8Tail = PanelTraits<Int8Weight>::tail;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
/// Sums in the type of the instructions: GCC writes those of intrinsics to the stack after each addition.
using Accumulator = std::int32_t __attribute__((vector_size(sizeof(Sums32))));
HWY_INLINE Accumulator AccumulatorOf(Sums32 sum) { return reinterpret_cast<Accumulator>(sum.raw); }
HWY_INLINE Sums32 SumsOf(Accumulator sum) { return Sums32{reinterpret_cast<decltype(Sums32::raw)>(sum)}; }
#else
using Accumulator = Sums32;
HWY_INLINE Accumulator AccumulatorOf(Sums32 sum) { return sum; }
HWY_INLINE Sums32 SumsOf(Accumulator sum) { return sum; }
#endif
HWY_INLINE Accumulator ZeroSums() { return AccumulatorOf(hn::Zero(hn::RebindToSigned<Simd::Tag>())); }

#if PENSTOCK_INT8_PRODUCTS && HWY_TARGET == HWY_AVX3

/// Offset of weights in panels: the instruction multiplies unsigned bytes by signed ones.
constexpr int kInt8Offset = 128;

using WeightQuads = Sums32;
using InputQuad = Sums32;
HWY_INLINE WeightQuads LoadQuads(const Int8Weight* panel) { return WeightQuads{_mm512_loadu_epi32(panel)}; }
HWY_INLINE InputQuad SplitQuad(std::int32_t inputs) { return InputQuad{_mm512_set1_epi32(inputs)}; }
HWY_INLINE Sums32 AddQuads(const InputQuad& x, const WeightQuads& w, Sums32 sum) {
  return Sums32{_mm512_dpbusd_epi32(sum.raw, w.raw, x.raw)};
}

#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64

constexpr int kInt8Offset = 0;

using WeightQuads = int8x16_t;
using InputQuad = int8x16_t;
HWY_INLINE WeightQuads LoadQuads(const Int8Weight* panel) { return vld1q_s8(&panel->value); }
HWY_INLINE InputQuad SplitQuad(std::int32_t inputs) { return vreinterpretq_s8_s32(vdupq_n_s32(inputs)); }
HWY_INLINE Sums32 AddQuads(const InputQuad& x, const WeightQuads& w, Sums32 sum) {
#if PENSTOCK_INT8_PRODUCTS
  return Sums32(vdotq_s32(sum.raw, w, x));
#else  // sums of two products fit 16 bits, as no factor is -128
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
  return Sums32(vpadalq_s16(sum.raw, vpaddq_s16(low, high)));
#endif
}

#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr int kInt8Offset = 0;

/// Pairs of inputs in 16 bits each: the first and the third, the second and the fourth.
struct WeightQuads {
  hn::Vec<hn::Repartition<std::int16_t, Simd::Tag>> even, odd;
};
using InputQuad = WeightQuads;

HWY_INLINE WeightQuads SplitBytes(hn::Vec<hn::Repartition<std::int16_t, Simd::Tag>> pairs) {
  return {hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs)), hn::ShiftRight<8>(pairs)};
}
HWY_INLINE WeightQuads LoadQuads(const Int8Weight* panel) {
  return SplitBytes(
      hn::LoadU(hn::Repartition<std::int16_t, Simd::Tag>(), reinterpret_cast<const std::int16_t*>(panel)));
}
HWY_INLINE InputQuad SplitQuad(std::int32_t inputs) {
  return SplitBytes(
      hn::BitCast(hn::Repartition<std::int16_t, Simd::Tag>(), hn::Set(hn::RebindToSigned<Simd::Tag>(), inputs)));
}
HWY_INLINE Sums32 AddQuads(const InputQuad& x, const WeightQuads& w, Sums32 sum) {
  const hn::RebindToSigned<Simd::Tag> di;
  Sums32 unused = hn::Zero(di);
  sum = hn::ReorderWidenMulAccumulate(di, x.even, w.even, sum, unused);
  return hn::ReorderWidenMulAccumulate(di, x.odd, w.odd, sum, unused);
}

#else

constexpr int kInt8Offset = 0;

/// The four inputs, each in 32 bits.
struct WeightQuads {
  Sums32 input[4];
};
using InputQuad = WeightQuads;

HWY_INLINE WeightQuads SplitBytes(Sums32 quads) {
  return {{hn::ShiftRight<24>(hn::ShiftLeft<24>(quads)), hn::ShiftRight<24>(hn::ShiftLeft<16>(quads)),
           hn::ShiftRight<24>(hn::ShiftLeft<8>(quads)), hn::ShiftRight<24>(quads)}};
}
HWY_INLINE WeightQuads LoadQuads(const Int8Weight* panel) {
  return SplitBytes(hn::LoadU(hn::RebindToSigned<Simd::Tag>(), reinterpret_cast<const std::int32_t*>(panel)));
}
HWY_INLINE InputQuad SplitQuad(std::int32_t inputs) {
  return SplitBytes(hn::Set(hn::RebindToSigned<Simd::Tag>(), inputs));
}
HWY_INLINE Sums32 AddQuads(const InputQuad& x, const WeightQuads& w, Sums32 sum) {
  for (int i = 0; i < 4; ++i) sum = hn::Add(sum, hn::Mul(x.input[i], w.input[i]));
  return sum;
}

#endif

/// Four operands from `a` on.
HWY_INLINE InputQuad LoadQuad(const std::int8_t* a) {
  std::int32_t inputs = 0;
  std::memcpy(&inputs, a, sizeof(inputs));
  return SplitQuad(inputs);
}

/// How a row's sums become floats.
struct RowScale {
  float scale;
  std::int32_t correction;  // of sums
};

HWY_INLINE RowScale LoadRowScale(const std::int8_t* row, Index k_count) {
  static_assert(sizeof(RowScale) == kInt8Tail);
  RowScale tail;
  std::memcpy(&tail, row + OperandInputs<Int8Weight>(k_count) - kInt8Tail, sizeof(tail));
  return tail;
}

/// Rounds a row of operands to int8: the largest to +-127. `padded` is OperandInputs(count). A row that holds what is
/// no finite number has the scale NaN, which all of its sums then are.
HWY_INLINE void RoundRow(const float* x, Index count, Index padded, std::int8_t* rounded) {
  const Simd::Tag d;
  const hn::RebindToSigned<Simd::Tag> di;
  const hn::Rebind<std::int8_t, Simd::Tag> bytes;
  const auto load = [&](Index i)
                        HWY_ATTR { return Lanes<float>::load(x + i, std::min<Index>(Simd::lanes, count - i)); };
  Sums32 largest = hn::Zero(di);  // by their bits, among which NaN is the largest
  for (Index i = 0; i < count; i += Simd::lanes) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(load(i).raw)));
  }
  const float most = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  // Smaller products would vanish next to any bias.
  constexpr float least = 1e-30f, highest = 3.40282347e38f;
  RowScale tail{most >= least ? most / 127.0f : 0.0f, 0};
  if (!(most <= highest)) tail.scale = most - most;
  const auto inverse = hn::Set(d, most >= least && most <= highest ? 127.0f / most : 0.0f);
  const Index room = padded - kInt8Tail;
  Sums32 total = hn::Zero(di);
  for (Index i = 0; i < room; i += Simd::lanes) {
    const Sums32 nearest = i < count ? hn::NearestInt(hn::Mul(load(i).raw, inverse)) : hn::Zero(di);
    total = hn::Add(total, nearest);
    std::int8_t block[Simd::lanes];
    const bool whole = room - i >= Simd::lanes;
    hn::StoreU(hn::DemoteTo(bytes, nearest), bytes, whole ? rounded + i : block);
    if (!whole) std::copy_n(block, room - i, rounded + i);
  }
  // The sum of a row that is not finite may overflow. That has no effect, because its scale is NaN.
  const auto sum = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(di, total)));
  tail.correction = static_cast<std::int32_t>(0u - kInt8Offset * sum);
  std::memcpy(rounded + room, &tail, sizeof(tail));
}

/// Rounds `from` [B, H] of the rows of a part that still run to operands of its member.
HWY_INLINE const std::int8_t* RoundHeads(const DenseForward<float>& job, const DensePart& part, Index slot_end,
                                         const float* from) {
  const Index head_size = job.hidden / job.heads, stride = HeadStride<Int8Weight>(head_size);
  std::int8_t* const rows = reinterpret_cast<std::int8_t*>(job.rounded.h[0]) +
                            part.member * (job.plan.rows + kRoundedRows) * job.heads * stride;
  for (Index i = part.slot_begin * job.heads; i < slot_end * job.heads; ++i) {
    RoundRow(from + i * head_size, head_size, stride, rows + i * stride);
  }
  return rows;
}

/// Adds a sum to where it belongs: the product with both scales.
HWY_INLINE Simd AddScaled(Simd to, Sums32 sum, const RowScale& row, const float* scales) {
  if constexpr (kInt8Offset != 0) sum = hn::Add(sum, hn::Set(hn::RebindToSigned<Simd::Tag>(), row.correction));
  const Simd scale = Simd(row.scale) * Lanes<float>::load(scales);
  return to + Simd(hn::ConvertTo(Simd::Tag(), sum)) * scale;
}

HWY_INLINE const float* ScalesBehind(const Int8Weight* panel, Index inputs, Index row) {
  return reinterpret_cast<const float*>(panel + inputs * row);
}

template <class Real, int rows, int vectors>
HWY_INLINE void AccumulatePanel(const std::int8_t* const (&a)[rows], Index k_count, const Int8Weight* panel,
                                Simd (&acc)[rows][vectors]) {
  const Index inputs = PanelInputs<Int8Weight>(k_count) - kInt8Tail;
  const float* const scales = ScalesBehind(panel, inputs, vectors * Simd::lanes);
  RowScale tail[rows];
  for (int m = 0; m < rows; ++m) tail[m] = LoadRowScale(a[m], k_count);
  ForVectorsOfPass<rows, vectors>([&](auto first, auto count) HWY_ATTR {
    constexpr int begin = decltype(first)::value, vectors_of_pass = decltype(count)::value;
    Accumulator sum[rows][vectors_of_pass];
    for (int m = 0; m < rows; ++m) {
      for (int v = 0; v < vectors_of_pass; ++v) sum[m][v] = ZeroSums();
    }
    const Int8Weight* from = panel + 4 * begin * Simd::lanes;
    for (Index k = 0; k < inputs; k += 4, from += 4 * vectors * Simd::lanes) {
      WeightQuads w[vectors_of_pass];
      for (int v = 0; v < vectors_of_pass; ++v) w[v] = LoadQuads(from + 4 * v * Simd::lanes);
      for (int m = 0; m < rows; ++m) {
        const InputQuad x = LoadQuad(a[m] + k);
        for (int v = 0; v < vectors_of_pass; ++v) sum[m][v] = AccumulatorOf(AddQuads(x, w[v], SumsOf(sum[m][v])));
      }
    }
    for (int m = 0; m < rows; ++m) {
      for (int v = 0; v < vectors_of_pass; ++v) {
        acc[m][begin + v] =
            AddScaled(acc[m][begin + v], SumsOf(sum[m][v]), tail[m], scales + (begin + v) * Simd::lanes);
      }
    }
  });
}

template <class Real, int panels, int vectors>
HWY_INLINE void AccumulatePanels(const std::int8_t* a, Index k_count, const Int8Weight* panel, Index panel_size,
                                 Simd (&acc)[panels][vectors]) {
  const Index inputs = PanelInputs<Int8Weight>(k_count) - kInt8Tail;
  Accumulator sum[panels][vectors];
  for (int p = 0; p < panels; ++p) {
    for (int v = 0; v < vectors; ++v) sum[p][v] = ZeroSums();
  }
  const Int8Weight* from = panel;
  for (Index k = 0; k < inputs; k += 4, from += 4 * vectors * Simd::lanes) {
    const InputQuad x = LoadQuad(a + k);
    for (int p = 0; p < panels; ++p) {
      for (int v = 0; v < vectors; ++v) {
        const WeightQuads w = LoadQuads(from + p * panel_size + 4 * v * Simd::lanes);
        sum[p][v] = AccumulatorOf(AddQuads(x, w, SumsOf(sum[p][v])));
      }
    }
  }
  const RowScale tail = LoadRowScale(a, k_count);
  for (int p = 0; p < panels; ++p) {
    const float* const scales = ScalesBehind(panel + p * panel_size, inputs, vectors * Simd::lanes);
    for (int v = 0; v < vectors; ++v) {
      acc[p][v] = AddScaled(acc[p][v], SumsOf(sum[p][v]), tail, scales + v * Simd::lanes);
    }
  }
}

/// Rows that lie `stride` apart.
template <class Real, int rows, int vectors>
HWY_INLINE void AccumulateRows(const std::int8_t* a, Index stride, Index k_count, const Int8Weight* panel,
                               Simd (&acc)[rows][vectors]) {
  const std::int8_t* row[rows];
  for (int m = 0; m < rows; ++m) row[m] = a + m * stride;
  AccumulatePanel<Real, rows, vectors>(row, k_count, panel, acc);
}

/// Fills the panel of the units [first, first + units) of a head, as the function for other panels does.
inline Int8Weight* FillPanel(Index first, Index units, int gates, Index k_count, Index padded, Index head_size,
                             Int8Weight* packed, const PanelWeights<Int8Rows>& weights) {
  const Index row = gates * units, inputs = padded - kInt8Tail;
  float* const scales = reinterpret_cast<float*>(packed + inputs * row);
  std::fill_n(packed + inputs * row, kInt8Tail * row, Int8Weight{0});
  for (Index at = 0; at < row; ++at) {
    const Index gate = at / units, unit = first + at % units;
    if (unit < head_size) scales[at] = weights.scale(gate, unit);
    for (Index k = 0; k < inputs; ++k) {
      const int value = unit < head_size && k < k_count ? weights.at(gate, k, unit) : 0;
      packed[(k / 4 * row + at) * 4 + k % 4].value =
          std::bit_cast<std::int8_t>(static_cast<std::uint8_t>(value + kInt8Offset));
    }
  }
  return packed + padded * row;
}
