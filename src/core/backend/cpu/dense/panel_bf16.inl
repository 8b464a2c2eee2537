// Products with panels of bfloat16: two inputs of a unit lie side by side in 32 bits, the even one below.

/// Weights of the even inputs of a vector of units, as floats, and of the odd ones.
template <bool odd, class Panel>
HWY_INLINE Simd LoadWeights(const Panel* panel) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  const auto pairs = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(panel));
  return hn::BitCast(Simd::Tag(), odd ? hn::And(pairs, hn::Set(du, 0xffff0000u)) : hn::ShiftLeft<16>(pairs));
}

/// acc[m][v] += a[m] * the weights of one input.
template <bool odd, int rows, int vectors>
HWY_INLINE void AddInput(const float* const (&a)[rows], Index k, const Bf16Weight* panel, Simd (&acc)[rows][vectors]) {
  Simd b[vectors];
  for (int v = 0; v < vectors; ++v) b[v] = LoadWeights<odd>(panel + 2 * v * Simd::lanes);
  for (int m = 0; m < rows; ++m) {
    const Simd x(a[m][k]);
    for (int v = 0; v < vectors; ++v) acc[m][v] = MulAdd(x, b[v], acc[m][v]);
  }
}

/// Accumulates like the function for panels of floats, in the same order.
template <class Real, int rows, int vectors>
HWY_INLINE void AccumulatePanel(const float* const (&a)[rows], Index k_count, const Bf16Weight* panel,
                                Simd (&acc)[rows][vectors]) {
  Index k = 0;
  for (; k + 2 <= k_count; k += 2, panel += 2 * vectors * Simd::lanes) {
    AddInput<false>(a, k, panel, acc);
    AddInput<true>(a, k + 1, panel, acc);
  }
  if (k < k_count) AddInput<false>(a, k, panel, acc);
}

template <class Real, int panels, int vectors>
HWY_INLINE void AccumulatePanels(const float* a, Index k_count, const Bf16Weight* panel, Index panel_size,
                                 Simd (&acc)[panels][vectors]) {
  const auto add = [&](auto odd, Index k) HWY_ATTR {
    const Simd x(a[k]);
    for (int p = 0; p < panels; ++p) {
      for (int v = 0; v < vectors; ++v) {
        const Simd b = LoadWeights<decltype(odd)::value>(panel + p * panel_size + 2 * v * Simd::lanes);
        acc[p][v] = MulAdd(x, b, acc[p][v]);
      }
    }
  };
  Index k = 0;
  for (; k + 2 <= k_count; k += 2, panel += 2 * vectors * Simd::lanes) {
    add(std::false_type(), k);
    add(std::true_type(), k + 1);
  }
  if (k < k_count) add(std::false_type(), k);
}

#if PENSTOCK_BF16_PRODUCTS

/// Inputs that are rounded before they are used, where that was not done before: they stay in the first-level cache.
constexpr Index kRoundedInputs = 256;

/// Rounds to the nearest bfloat16 and stores it.
HWY_INLINE void StoreRounded(Simd v, std::uint16_t* rounded, Index count) {
  const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.raw.raw));
  if (count >= Simd::lanes) return _mm256_storeu_epi16(rounded, bits);
  _mm256_mask_storeu_epi16(rounded, static_cast<__mmask16>((1u << count) - 1), bits);
}

HWY_INLINE void StoreStored(Simd v, std::uint16_t* rounded, Index count) { StoreRounded(v, rounded, count); }
HWY_INLINE Simd LoadStored(const std::uint16_t* rounded, Index count) {
  const auto there = static_cast<__mmask16>((1u << count) - 1);
  const __m256i bits = count >= Simd::lanes ? _mm256_loadu_epi16(rounded) : _mm256_maskz_loadu_epi16(there, rounded);
  return typename Simd::Raw{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

/// A row of inputs, filled up with zeros.
HWY_INLINE void RoundRow(const float* x, Index count, Index padded, std::uint16_t* rounded) {
  for (Index i = 0; i < padded; i += Simd::lanes) {
    const Index there = std::clamp<Index>(count - i, 0, Simd::lanes);
    StoreRounded(Lanes<float>::load(x + i, there), rounded + i, std::min<Index>(Simd::lanes, padded - i));
  }
}

/// sum + the products of two inputs with their weights.
template <class Panel>
requires RoundsOperands<Panel> HWY_INLINE Simd AddPair(const std::uint16_t* inputs, const Panel* weights, Simd sum) {
  std::int32_t pair = 0;
  std::memcpy(&pair, inputs, sizeof(pair));
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  const auto b = reinterpret_cast<__m512bh>(_mm512_loadu_epi32(weights));
  return typename Simd::Raw{_mm512_dpbf16_ps(sum.raw.raw, x, b)};
}

template <class Real, int rows, int vectors, class Panel>
requires RoundsOperands<Panel> HWY_INLINE void AccumulatePanel(const std::uint16_t* const (&a)[rows], Index k_count,
                                                               const Panel* panel, Simd (&acc)[rows][vectors]) {
  for (Index k = 0; k < k_count; k += 2, panel += 2 * vectors * Simd::lanes) {
    for (int m = 0; m < rows; ++m) {
      for (int v = 0; v < vectors; ++v) acc[m][v] = AddPair(a[m] + k, panel + 2 * v * Simd::lanes, acc[m][v]);
    }
  }
}

template <class Real, int panels, int vectors, class Panel>
requires RoundsOperands<Panel> HWY_INLINE void AccumulatePanels(const std::uint16_t* a, Index k_count,
                                                                const Panel* panel, Index panel_size,
                                                                Simd (&acc)[panels][vectors]) {
  for (Index k = 0; k < k_count; k += 2, panel += 2 * vectors * Simd::lanes) {
    for (int p = 0; p < panels; ++p) {
      for (int v = 0; v < vectors; ++v) {
        acc[p][v] = AddPair(a + k, panel + p * panel_size + 2 * v * Simd::lanes, acc[p][v]);
      }
    }
  }
}

/// Rounds a count up to whole vectors: values that a masked store wrote cannot be read again before they reach the
/// cache.
constexpr Index WholeVectors(Index count) { return (count + Simd::lanes - 1) / Simd::lanes * Simd::lanes; }

/// Operands that are floats still.
template <class Real, int rows, int vectors, class Panel>
requires RoundsOperands<Panel> HWY_INLINE void AccumulatePanel(const float* const (&a)[rows], Index k_count,
                                                               const Panel* panel, Simd (&acc)[rows][vectors]) {
  alignas(64) std::uint16_t rounded[rows][kRoundedInputs];
  const std::uint16_t* row[rows];
  for (int m = 0; m < rows; ++m) row[m] = rounded[m];
  for (Index begin = 0; begin < k_count; begin += kRoundedInputs) {
    const Index count = std::min(kRoundedInputs, k_count - begin);
    for (int m = 0; m < rows; ++m) RoundRow(a[m] + begin, count, WholeVectors(count), rounded[m]);
    AccumulatePanel<Real, rows, vectors>(row, count, panel + begin * vectors * Simd::lanes, acc);
  }
}

template <class Real, int panels, int vectors, class Panel>
requires RoundsOperands<Panel> HWY_INLINE void AccumulatePanels(const float* a, Index k_count, const Panel* panel,
                                                                Index panel_size, Simd (&acc)[panels][vectors]) {
  alignas(64) std::uint16_t rounded[kRoundedInputs];
  for (Index begin = 0; begin < k_count; begin += kRoundedInputs) {
    const Index count = std::min(kRoundedInputs, k_count - begin);
    RoundRow(a + begin, count, WholeVectors(count), rounded);
    AccumulatePanels<Real, panels, vectors>(rounded, count, panel + begin * vectors * Simd::lanes, panel_size, acc);
  }
}

#endif  // PENSTOCK_BF16_PRODUCTS

/// Rows that lie `stride` apart.
template <class Real, int rows, int vectors, Rounded Panel, class Operand>
HWY_INLINE void AccumulateRows(const Operand* a, Index stride, Index k_count, const Panel* panel,
                               Simd (&acc)[rows][vectors]) {
  const Operand* row[rows];
  for (int m = 0; m < rows; ++m) row[m] = a + m * stride;
  AccumulatePanel<Real, rows, vectors>(row, k_count, panel, acc);
}
