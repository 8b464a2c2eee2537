// Narrow heads: a vector of units holds several of them whole. The engines take all heads of a layer as one head. Each
// unit then reads only the states of its own head, which are in the same vector. A panel has as many inputs as a head
// has units.

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

/// acc [gates][width] += the product of `a` with a panel. `a` holds the units of a block; the first `there` of them
/// exist.
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

/// Fills the panel of the units [first, first + units) from element(gate, k, unit), where k counts the inputs. Returns
/// its end.
template <class Element>
float* FillNarrowPanel(Index first, Index units, Index hidden, int gates, Index inputs, float* packed,
                       const Element& element) {
  for (Index k = 0; k < inputs; ++k) {
    for (int gate = 0; gate < gates; ++gate) {
      for (Index u = first; u < first + units; ++u) *packed++ = u < hidden ? element(gate, k, u) : 0.0f;
    }
  }
  return packed;
}

/// Packs the panels of all blocks.
template <class Element>
float* FillNarrowPanels(const PanelShape& shape, Index hidden, int gates, Index inputs, float* packed,
                        const Element& element) {
  for (Index first = 0; first < shape.blocks * shape.units; first += shape.units) {
    packed = FillNarrowPanel(first, shape.units, hidden, gates, inputs, packed, element);
  }
  return packed;
}

/// Returns the start of row `unit` of a gate's matrix in weights [heads, gates, D, D].
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

/// Packs the transposed matrices; these panels have the gates one after the other, among the inputs.
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

/// Adds the gradients of rows [first, first + rows) to those of `vectors` vectors of units from `unit` on.
template <Index head_size, int vectors>
HWY_INLINE void AddNarrowGradient(const NarrowGradient<float>& job, Index first, Index rows, Index unit, Index count) {
  using L = Lanes<float>;
  Simd sums[vectors][head_size];
  for (auto& of_vector : sums) {
    for (Simd& sum : of_vector) sum = Simd(0);
  }
  for (Index row = first; row < first + rows; ++row) {
    for (int v = 0; v < vectors; ++v) {
      const Simd d = L::load(job.drh + row * job.stride + unit + v * L::lanes, count);
      const Simd h = L::load(job.operand[row] + unit + v * L::lanes, count);
      for (Index k = 0; k < head_size; ++k) sums[v][k] = MulAdd(d, UnitOfHead(h, head_size, k), sums[v][k]);
    }
  }
  for (int v = 0; v < vectors; ++v) {
    for (Index k = 0; k < head_size; ++k) {
      alignas(64) float of_units[L::lanes];
      L::store(sums[v][k], of_units);
      for (Index i = 0; i < count; ++i) {
        const Index at = unit + v * L::lanes + i;
        job.gradient[at / head_size * job.head_stride + at % head_size * head_size + k] += of_units[i];
      }
    }
  }
}

/// Sums run row after row within a block of rows and block after block, as AddTransposed()'s do.
template <Index head_size>
void AddNarrowGradients(const NarrowGradient<float>& job, Index begin, Index end) {
  constexpr Index lanes = Lanes<float>::lanes;
  constexpr int vectors = static_cast<int>(8 / head_size);  // with as many sums as keep the multipliers busy
  const Index blocks = (job.rows + kTransposedRows - 1) / kTransposedRows;
  for (Index block = 0; block < blocks; ++block) {
    const Index first = job.rows * block / blocks, rows = job.rows * (block + 1) / blocks - first;
    Index unit = begin;
    for (; unit + vectors * lanes <= end; unit += vectors * lanes) {
      AddNarrowGradient<head_size, vectors>(job, first, rows, unit, lanes);
    }
    for (; unit < end; unit += lanes) {
      AddNarrowGradient<head_size, 1>(job, first, rows, unit, std::min(lanes, end - unit));
    }
  }
}

inline void RunNarrowGradient(const NarrowGradient<float>& job, Index begin, Index end) {
  switch (job.mixed) {
    case 1:
      return AddNarrowGradients<1>(job, begin, end);
    case 2:
      return AddNarrowGradients<2>(job, begin, end);
    case 4:
      return AddNarrowGradients<4>(job, begin, end);
    default:  // a vector has at most 16 lanes
      return AddNarrowGradients<8>(job, begin, end);
  }
}
