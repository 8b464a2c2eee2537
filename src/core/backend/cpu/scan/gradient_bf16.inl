// Gradients as in gradient.inl, from gates whose gradients are rounded to bfloat16. Both products multiply rows of
// operands by panels of two vectors, as in the forward pass: for dx, the gradients of a step's gates by W; for dW, the
// gradients of one channel over all steps, transposed on the way, by the inputs.
//
// Layouts, L lanes, K = G * ceil(H / L) * L channels: dwx [capacity + kRoundedRows, PanelInputs(K)], x packed
// [ceil(I / 2L), PanelInputs(capacity)] and weights [ceil(I / 2L), PanelInputs(K)] as panels. Padding is zero.

constexpr Index kGradientUnits = 2 * Simd::lanes;

using RoundedPiece = ScanGradient<float, std::uint16_t>;

/// Channels of all gates with their padding, as operands.
template <class Panel>
Index GradientChannels(Index gates, Index hidden) {
  return PanelInputs<Panel>(gates * ((hidden + Simd::lanes - 1) / Simd::lanes * Simd::lanes));
}

/// Rows of operands by a panel of two vectors: visit(row, sums) for each row.
template <class Panel, class Visit>
void MultiplyRows(Index rows, const std::uint16_t* operands, Index stride, Index inputs, const Panel* panel,
                  const Visit& visit) {
  ForEachTile<MaxStridedRows<float, 2>()>(0, rows, [&](auto some, Index first) HWY_ATTR {
    constexpr int count = decltype(some)::value;
    Simd sums[count][2];
    for (int m = 0; m < count; ++m) sums[m][0] = sums[m][1] = Simd(0);
    AccumulateRows<float, count, 2>(operands + first * stride, stride, inputs, panel, sums);
    for (int m = 0; m < count; ++m) visit(first + m, sums[m]);
  });
}

template <std::same_as<Bf16Tile> Panel, class Visit>
void MultiplyRows(Index rows, const std::uint16_t* operands, Index stride, Index inputs, const Panel* panel,
                  const Visit& visit) {
  const Simd zeros[2] = {Simd(0), Simd(0)};
  TileSums<2> sums;
  for (Index first = 0; first < rows; first += 2 * kTileRows) {
    const Index count = std::min(2 * kTileRows, rows - first);
    sums.multiply(count, {operands + first * stride, stride, inputs}, panel, zeros);
    for (Index m = 0; m < count; ++m) visit(first + m, sums.sum[m]);
  }
}

/// Two rows of floats as one vector of pairs, the first row's below.
HWY_INLINE __m512i Pairs(Simd first, Simd second) {
  alignas(64) static constexpr std::uint16_t kAlternating[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                                 21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                                 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.raw.raw, first.raw.raw));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kAlternating), both);
}

/// Rows [begin, end) of the piece into x packed; `begin` is even, and the part with the last row pads with zeros.
template <class Panel>
void PackScanInputRounded(const RoundedPiece& piece, Index begin, Index end) {
  const Index panel_size = PanelInputs<Panel>(piece.capacity) * kGradientUnits;
  const auto row_at = [&](Index cell, Index i) HWY_ATTR {
    const Index count = cell < piece.cells ? std::clamp<Index>(piece.input - i, 0, Simd::lanes) : 0;
    if (count == 0) return Simd(0);
    if (piece.x_row_bf16 != nullptr) return LoadStored(piece.x_row_bf16[cell] + i, count);
    return LoadStored(piece.x_row[cell] + i, count);
  };
  if (begin < end && end == piece.cells) end = PanelInputs<Panel>(end);
  for (Index cell = begin; cell < end; cell += 2) {
    std::uint16_t* to = piece.x_packed + cell * kGradientUnits;
    for (Index i = 0; i < piece.input; i += kGradientUnits, to += panel_size) {
      for (Index v = 0; v < kGradientUnits; v += Simd::lanes) {
        _mm512_storeu_si512(to + 2 * v, Pairs(row_at(cell, i + v), row_at(cell + 1, i + v)));
      }
    }
  }
}

/// dx = dwx W for rows [begin, end) of the piece: as many at a time as stay in the second-level cache beside a panel.
template <class Panel>
void RunScanInputGradientRounded(const RoundedPiece& piece, Index begin, Index end) {
  const Index channels = GradientChannels<Panel>(piece.gates, piece.hidden);
  const Index together = std::max<Index>(2 * kGradientUnits, (Index{384} << 10) / (channels * 2));
  PanelUse<Panel> use;
  use.set_rows(kGradientUnits);
  for (; begin < end; begin += together) {
    const Index rows = std::min(together, end - begin);
    const auto* panel = reinterpret_cast<const Panel*>(piece.weight_panels);
    for (Index i = 0; i < piece.input; i += kGradientUnits, panel += channels * kGradientUnits) {
      MultiplyRows(rows, piece.dwx + begin * channels, channels, channels, panel,
                   [&](Index row, const Simd* sums) HWY_ATTR {
                     for (int w = 0; w < 2; ++w) {
                       const Index at = i + w * Simd::lanes, count = std::min<Index>(Simd::lanes, piece.input - at);
                       if (count <= 0) continue;
                       if (piece.dx_row_bf16 != nullptr) {
                         StoreStored(sums[w], piece.dx_row_bf16[begin + row] + at, count);
                       } else {
                         StoreStored(sums[w], piece.dx_row[begin + row] + at, count);
                       }
                     }
                   });
    }
  }
}

/// Turns 16 vectors of 32 bits around: lane i of row m becomes lane m of row i.
HWY_INLINE void Transpose(__m512i (&rows)[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      rows[i + 2 * j] = _mm512_unpacklo_epi64(half[i + j], half[i + 2 + j]);
      rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(half[i + j], half[i + 2 + j]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    half[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    half[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    half[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0xdd);
  }
}

/// The gradients of one vector of channels over the piece's rows: columns [L, stride], and zeros up to what panels
/// hold. Adds to `sum` what the rows add up to.
template <class Panel>
HWY_INLINE void TransposeGradients(const RoundedPiece& piece, Index vector, Index stride, std::uint16_t* columns,
                                   Simd& sum) {
  const Index channels = GradientChannels<Panel>(piece.gates, piece.hidden);
  const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  const std::uint16_t* from = piece.dwx + vector * Simd::lanes;
  const auto row_at = [&](Index cell) HWY_ATTR {
    const __m256i bits = cell < piece.cells ? _mm256_loadu_epi16(from + cell * channels) : _mm256_setzero_si256();
    return _mm512_cvtepu16_epi32(bits);
  };
  for (Index cell = 0; cell < piece.cells; cell += 32) {
    __m512i pairs[16];
    for (int p = 0; p < 16; ++p) {
      const Index first = cell + 2 * p;
      pairs[p] = _mm512_or_si512(row_at(first), _mm512_slli_epi32(row_at(first + 1), 16));
      sum = typename Simd::Raw{_mm512_dpbf16_ps(sum.raw.raw, reinterpret_cast<__m512bh>(pairs[p]), one)};
    }
    Transpose(pairs);
    for (int c = 0; c < 16; ++c) _mm512_storeu_si512(columns + c * stride + cell, pairs[c]);
  }
}

/// Adds to the gradients of weights and bias that belong to vectors of channels [begin, end) of G * ceil(H / L).
template <class Panel>
void RunScanWeightGradientRounded(const RoundedPiece& piece, Index begin, Index end) {
  const Index stride = column_stride(piece.capacity);
  const Index inputs = PanelInputs<Panel>(piece.cells);
  const auto channel_of = [&](Index vector) { return vector % piece.blocks * Simd::lanes; };
  const auto weight_of = [&](Index vector) { return vector / piece.blocks * piece.hidden + channel_of(vector); };
  std::uint16_t* const columns = piece.columns;
  PanelUse<Panel> use;
  use.set_rows(kGradientUnits);
  for (; begin < end; begin += 2) {
    const Index vectors = std::min<Index>(2, end - begin);
    for (Index v = 0; v < vectors; ++v) {
      Simd sum(0);
      TransposeGradients<Panel>(piece, begin + v, stride, columns + v * Simd::lanes * stride, sum);
      if (piece.bias_gradient == nullptr) continue;
      const Index count = std::min<Index>(Simd::lanes, piece.hidden - channel_of(begin + v));
      float* to = piece.bias_gradient + weight_of(begin + v);
      Lanes<float>::store(Lanes<float>::load(to, count) + sum, to, count);
    }
    if (piece.weight_gradient == nullptr) continue;
    const auto* panel = reinterpret_cast<const Panel*>(piece.x_packed);
    for (Index i = 0; i < piece.input;
         i += kGradientUnits, panel += PanelInputs<Panel>(piece.capacity) * kGradientUnits) {
      MultiplyRows(vectors * Simd::lanes, columns, stride, inputs, panel, [&](Index row, const Simd* sums) HWY_ATTR {
        const Index vector = begin + row / Simd::lanes, lane = row % Simd::lanes;
        if (channel_of(vector) + lane >= piece.hidden) return;
        float* to = piece.weight_gradient + (weight_of(vector) + lane) * piece.input + i;
        for (int w = 0; w < 2; ++w, to += Simd::lanes) {
          const Index count = std::min<Index>(Simd::lanes, piece.input - i - w * Simd::lanes);
          if (count > 0) Lanes<float>::store(Lanes<float>::load(to, count) + sums[w], to, count);
        }
      });
    }
  }
}

template <class Panel>
std::size_t ScanGradientPanelsRounded(Index gates, Index input, Index hidden) {
  const Index units = (input + kGradientUnits - 1) / kGradientUnits * kGradientUnits;
  return PanelReals<Panel>(units * GradientChannels<Panel>(gates, hidden));
}

template <class Panel>
void PackScanGradientRounded(Index gates, Index input, Index hidden, StoredWeights<float> weight_ih, float* packed) {
  const PanelShape shape{.blocks_per_head = (input + kGradientUnits - 1) / kGradientUnits, .units = kGradientUnits};
  const Index padded = (hidden + Simd::lanes - 1) / Simd::lanes * Simd::lanes;
  WithStored<Panel>(weight_ih, input, [&](auto weights) {
    FillStackedPanels(shape, static_cast<int>(gates), hidden, padded, input, reinterpret_cast<Panel*>(packed),
                      [&](Index, int gate) {
                        return PanelWeights{weights + gate * hidden * input, Index{0}, input, Index{1}};
                      });
  });
}
