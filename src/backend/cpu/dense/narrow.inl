// Narrow heads: a vector of units holds several of them whole. The engines take all of a layer's heads as one, whose
// every unit reads the states of its own head alone, out of the vector that it is in. A panel's inputs are the units of
// a head.

/// Lane i is lane k of its head in `v`. Heads have a power of two units.
HWY_INLINE Simd UnitOfHead(Simd v, [[maybe_unused]] Index head_size, [[maybe_unused]] Index k) {
#if HWY_TARGET == HWY_SCALAR
  return v;
#else
  if (head_size == 1) return v;
  const Simd::Tag d;
  const hn::RebindToSigned<Simd::Tag> di;
  const auto first = hn::AndNot(hn::Set(di, static_cast<std::int32_t>(head_size - 1)), hn::Iota(di, 0));
  const auto lane = hn::Add(first, hn::Set(di, static_cast<std::int32_t>(k)));
  return hn::TableLookupLanes(v.raw, hn::IndicesFromVec(d, lane));
#endif
}

/// acc [gates][width] += the product of `a`, the units of a block of which `there` exist, with a panel.
template <int gates, int width>
HWY_INLINE void AccumulateNarrow(const float* a, Index there, Index head_size, const float* panel,
                                 Simd (&acc)[gates * width]) {
  for (int w = 0; w < width && w * Simd::lanes < there; ++w) {
    const Simd units = Lanes<float>::load(a + w * Simd::lanes, std::min(Simd::lanes, there - w * Simd::lanes));
    for (Index k = 0; k < head_size; ++k) {
      const Simd x = UnitOfHead(units, head_size, k);
      for (int g = 0; g < gates; ++g) {
        const float* const column = panel + ((k * gates + g) * width + w) * Simd::lanes;
        acc[g * width + w] = MulAdd(x, Lanes<float>::load(column), acc[g * width + w]);
      }
    }
  }
}

/// Fills the panels of all blocks from element(gate, k, unit), where k counts the inputs. Returns their end.
template <class Element>
float* FillNarrowPanels(const PanelShape& shape, Index hidden, int gates, Index inputs, float* packed,
                        const Element& element) {
  for (Index first = 0; first < shape.blocks * shape.units; first += shape.units) {
    for (Index k = 0; k < inputs; ++k) {
      for (int gate = 0; gate < gates; ++gate) {
        for (Index u = first; u < first + shape.units; ++u) *packed++ = u < hidden ? element(gate, k, u) : 0.0f;
      }
    }
  }
  return packed;
}

/// Where row `unit` of a gate's matrix begins, in weights [heads, gates, D, D].
HWY_INLINE const float* NarrowRow(const float* weights, int gates, Index head_size, int gate, Index unit) {
  return weights + ((unit / head_size * gates + gate) * head_size + unit % head_size) * head_size;
}

template <class Cell>
void PackNarrow(const PanelShape& shape, Index hidden, const float* weights, float* packed) {
  constexpr int first = FirstGroup<Cell>();
  const auto fill = [&](int first_gate, int count, float* panels) {
    return FillNarrowPanels(shape, hidden, count, shape.mixed, panels, [&](int gate, Index k, Index unit) {
      return NarrowRow(weights, Cell::gates, shape.mixed, first_gate + gate, unit)[k];
    });
  };
  float* const second = fill(0, first, packed);
  if constexpr (Cell::phases == 2) fill(first, Cell::gates - first, second);
}

/// Of the transposed matrices; panels have the gates one after the other, among the inputs.
template <class Cell>
void PackNarrowBackward(const PanelShape& shape, Index hidden, const float* weights, float* packed) {
  constexpr int split = FirstGroup<Cell>();
  const Index D = shape.mixed;
  const auto fill = [&](int first_gate, int count, float* panels) {
    return FillNarrowPanels(shape, hidden, 1, count * D, panels, [&](int, Index k, Index unit) {
      const int gate = first_gate + static_cast<int>(k / D);
      return NarrowRow(weights, Cell::gates, D, gate, unit / D * D + k % D)[unit % D];
    });
  };
  float* const second = fill(0, split, packed);
  if constexpr (Cell::phases == 2) fill(split, Cell::gates - split, second);
}
