// How panels are packed: from weights as their owner stores them, reals or bfloat16, a block of inputs and units at a
// time.

#include "backend/cpu/dense/panel.inl"

template <class Panel, class Source>
inline Panel ToPanel(Source x) {
  if constexpr (std::is_same_v<Source, std::uint16_t>) {
    return {x};
  } else if constexpr (Rounded<Panel>) {
    return {RoundToBf16(x)};
  } else {
    return Panel{x};
  }
}

/// A place among the rows of an Int8Matrix, `width` values each; moves like a pointer, from row to row.
struct Int8Rows {
  const std::int8_t* values;
  const float* scales;
  Index width;

  Int8Rows operator+(Index n) const { return {values + n, scales + n / width, width}; }
};

/// body(weights) for weights [.., width] as they are stored: reals, bfloat16 or int8.
template <class Panel, class Body>
void WithStored(const StoredWeights<RealOf<Panel>>& weights, [[maybe_unused]] Index width, const Body& body) {
  if constexpr (Int8<Panel>) return body(Int8Rows{weights.int8.values, weights.int8.scales, width});
  if constexpr (RoundsOperands<Panel>) {
    if (weights.bf16 != nullptr) return body(weights.bf16);
  }
  if constexpr (!Int8<Panel>) body(weights.reals);
}

/// The weights of a panel where the caller has them: element (gate, k, unit) of a head lies so far from the first.
/// Either inputs or units are side by side. A Source is a Real, or the bits of a bfloat16.
template <class Source>
struct PanelWeights {
  const Source* first;
  Index gate_stride, k_stride, unit_stride;

  HWY_INLINE const Source* at(Index gate, Index k, Index unit) const {
    return first + gate * gate_stride + k * k_stride + unit * unit_stride;
  }
};

/// Rows of int8, whose inputs are side by side.
template <>
struct PanelWeights<Int8Rows> {
  Int8Rows first;
  Index gate_stride, k_stride, unit_stride;

  std::int8_t at(Index gate, Index k, Index unit) const { return row(gate, unit).values[k]; }
  float scale(Index gate, Index unit) const { return *row(gate, unit).scales; }
  Int8Rows row(Index gate, Index unit) const { return first + gate * gate_stride + unit * unit_stride; }
};

template <class Source>
PanelWeights(const Source*, Index, Index, Index) -> PanelWeights<Source>;
template <std::same_as<Int8Rows> Source>
PanelWeights(Source, Index, Index, Index) -> PanelWeights<Source>;

#if HWY_TARGET != HWY_SCALAR

/// Rows of four values by four: of each block of 128 bits by itself.
HWY_INLINE void TransposeInBlocks(Simd (&row)[4]) {
  const Simd::Tag d;
  const hn::Repartition<std::uint64_t, Simd::Tag> pairs;
  const auto halves = [&](Simd a, Simd b, Simd& low, Simd& high) HWY_ATTR {
    const auto x = hn::BitCast(pairs, a.raw), y = hn::BitCast(pairs, b.raw);
    low = hn::BitCast(d, hn::InterleaveLower(pairs, x, y));
    high = hn::BitCast(d, hn::InterleaveUpper(pairs, x, y));
  };
  const Simd low01 = hn::InterleaveLower(d, row[0].raw, row[1].raw);
  const Simd low23 = hn::InterleaveLower(d, row[2].raw, row[3].raw);
  const Simd high01 = hn::InterleaveUpper(d, row[0].raw, row[1].raw);
  const Simd high23 = hn::InterleaveUpper(d, row[2].raw, row[3].raw);
  halves(low01, low23, row[0], row[1]);
  halves(high01, high23, row[2], row[3]);
}

/// Transposes a square of as many rows as a vector has lanes: lane i of row j becomes lane j of row i.
HWY_INLINE void Transpose(Simd (&row)[Simd::lanes]) {
  const Simd::Tag d;
  constexpr Index blocks = Simd::lanes / 4;
  static_assert(blocks == 1 || blocks == 2 || blocks == 4);
  Simd part[blocks][4];  // [q][j]: in block p the values 4p + j of rows 4q to 4q + 3
  for (Index q = 0; q < blocks; ++q) {
    for (Index j = 0; j < 4; ++j) part[q][j] = row[4 * q + j];
    TransposeInBlocks(part[q]);
  }
  for (Index j = 0; j < 4; ++j) {
    if constexpr (blocks == 1) {
      row[j] = part[0][j];
    } else if constexpr (blocks == 2) {
      row[j] = hn::ConcatLowerLower(d, part[1][j].raw, part[0][j].raw);
      row[4 + j] = hn::ConcatUpperUpper(d, part[1][j].raw, part[0][j].raw);
    } else {
      for (Index half = 0; half < 2; ++half) {  // blocks 0 and 1 of all four parts, then 2 and 3
        const auto joined = [&](Simd upper, Simd lower) HWY_ATTR {
          return half == 0 ? hn::ConcatLowerLower(d, upper.raw, lower.raw)
                           : hn::ConcatUpperUpper(d, upper.raw, lower.raw);
        };
        const auto even = joined(part[2][j], part[0][j]), odd = joined(part[3][j], part[1][j]);
        row[8 * half + j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
        row[8 * half + 4 + j] = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
      }
    }
  }
}

/// Inputs [k, k + lanes) of a gate for the units from `unit` on, a vector of units each; what does not exist is zero.
HWY_INLINE void LoadPanelBlock(const PanelWeights<float>& weights, Index gate, Index k, Index k_count, Index unit,
                               Index unit_count, Simd (&block)[Simd::lanes]) {
  const bool along_units = weights.unit_stride == 1;
  const Index rows = (along_units ? k_count - k : unit_count - unit);
  const Index there = std::min(Simd::lanes, along_units ? unit_count - unit : k_count - k);
  const Index stride = along_units ? weights.k_stride : weights.unit_stride;
  const float* const from = weights.at(gate, k, unit);
  for (Index i = 0; i < Simd::lanes; ++i) {
    block[i] = i < rows && there > 0 ? Lanes<float>::load(from + i * stride, there) : Simd(0);
  }
  if (!along_units) Transpose(block);
}

/// Inputs k and, of rounded panels, k + 1 of a vector of units.
template <class Panel>
HWY_INLINE void StorePanel(const Simd* block, Panel* panel) {
  if constexpr (Rounded<Panel>) {
    const hn::RebindToUnsigned<Simd::Tag> du;
    const auto pairs = hn::Or(RoundedBits(block[0]), hn::ShiftLeft<16>(RoundedBits(block[1])));
    hn::StoreU(pairs, du, reinterpret_cast<std::uint32_t*>(panel));
  } else {
    Lanes<float>::store(block[0], panel);
  }
}

/// Two inputs side by side, of each unit of a vector.
using InputPairs = hn::Vec<hn::RebindToUnsigned<Simd::Tag>>;

/// `there` numbers of 16 bits, at most two a lane, and zeros behind them.
HWY_INLINE InputPairs LoadInputPairs(const std::uint16_t* from, Index there) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  if (there >= 2 * Simd::lanes) return hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(from));
  alignas(64) std::uint16_t padded[2 * Simd::lanes] = {};
  if (there > 0) std::copy_n(from, there, padded);
  return hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(padded));
}

/// Inputs [k, k + 2 lanes) of a gate for the units from `unit` on, two inputs of a vector of units each.
HWY_INLINE void LoadPanelPairs(const PanelWeights<std::uint16_t>& weights, Index gate, Index k, Index k_count,
                               Index unit, Index unit_count, InputPairs (&block)[Simd::lanes]) {
  const hn::RebindToUnsigned<Simd::Tag> du;
  if (weights.unit_stride != 1) {
    Simd row[Simd::lanes];
    for (Index i = 0; i < Simd::lanes; ++i) {
      const Index there = unit + i < unit_count ? k_count - k : 0;
      row[i] = hn::BitCast(Simd::Tag(), LoadInputPairs(there > 0 ? weights.at(gate, k, unit + i) : nullptr, there));
    }
    Transpose(row);
    for (Index i = 0; i < Simd::lanes; ++i) block[i] = hn::BitCast(du, row[i].raw);
    return;
  }
  const hn::Rebind<std::uint16_t, Simd::Tag> halves;
  const auto load = [&](Index input) HWY_ATTR {
    const Index there = input < k_count ? std::min(Simd::lanes, unit_count - unit) : 0;
    alignas(64) std::uint16_t padded[Simd::lanes] = {};
    if (there > 0 && there < Simd::lanes) std::copy_n(weights.at(gate, input, unit), there, padded);
    const std::uint16_t* const from = there == Simd::lanes ? weights.at(gate, input, unit) : padded;
    return hn::PromoteTo(du, hn::LoadU(halves, from));
  };
  for (Index i = 0; i < Simd::lanes; ++i) {
    block[i] = hn::Or(load(k + 2 * i), hn::ShiftLeft<16>(load(k + 2 * i + 1)));
  }
}

#endif  // HWY_TARGET

/// Fills the panel of the units [first, first + units) of a head, with zeros for inputs from k_count to `padded`.
/// Returns its end.
template <class Panel, class Source>
Panel* FillPanel(Index first, Index units, int gates, Index k_count, Index padded, Index head_size, Panel* packed,
                 const PanelWeights<Source>& weights) {
  constexpr Index group = PanelTraits<Panel>::group;
  const Index row = gates * units;  // of one input
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Source, std::uint16_t>) {
    const hn::RebindToUnsigned<Simd::Tag> du;
    for (Index k = 0; k < padded; k += 2 * Simd::lanes) {
      const Index pairs = std::min(2 * Simd::lanes, padded - k) / 2;
      for (Index at = 0; at < row; at += Simd::lanes) {
        InputPairs block[Simd::lanes];
        LoadPanelPairs(weights, at / units, k, k_count, first + at % units, head_size, block);
        for (Index i = 0; i < pairs; ++i) {
          hn::StoreU(block[i], du, reinterpret_cast<std::uint32_t*>(packed + (k + 2 * i) * row + 2 * at));
        }
      }
    }
    return packed + padded * row;
  } else if constexpr (std::is_same_v<LanesOf<Panel>, Lanes<float>>) {
    for (Index k = 0; k < padded; k += Simd::lanes) {
      const Index inputs = std::min(Simd::lanes, padded - k);
      for (Index at = 0; at < row; at += Simd::lanes) {
        Simd block[Simd::lanes];
        LoadPanelBlock(weights, at / units, k, k_count, first + at % units, head_size, block);
        for (Index i = 0; i < inputs; i += group) StorePanel(block + i, packed + (k + i) * row + at * group);
      }
    }
    return packed + padded * row;
  }
#endif
  Panel* to = packed;
  for (Index k = 0; k < padded; k += group) {
    for (Index at = 0; at < row; ++at) {
      const Index unit = first + at % units;
      for (Index i = k; i < k + group; ++i) {
        const bool there = unit < head_size && i < k_count;
        *to++ = ToPanel<Panel>(there ? *weights.at(at / units, i, unit) : Source(0));
      }
    }
  }
  return packed + padded * row;
}

/// Fills panels, cut into blocks as `shape` says, from weights_of(head). Returns their end.
template <class Panel, class WeightsOf>
inline Panel* FillPanels(const PanelShape& shape, int gates, Index k_count, Index head_size, Panel* packed,
                         const WeightsOf& weights_of) {
  for (Index head = 0; head < shape.heads; ++head) {
    for (Index first = 0; first < shape.blocks_per_head * shape.units; first += shape.units) {
      packed = FillPanel(first, shape.units, gates, k_count, PanelInputs<Panel>(k_count), head_size, packed,
                         weights_of(head));
    }
  }
  return packed;
}

/// Packs panels that have the gates one after the other, among the inputs: `padded` inputs of each gate, and of the
/// last one as many as fill the panel. weights_of(head, gate) has a single gate.
template <class Panel, class WeightsOf>
requires(!Rounded<Panel> || RoundsOperands<Panel>) inline Panel* FillStackedPanels(const PanelShape& shape, int gates,
                                                                                   Index k_count, Index padded,
                                                                                   Index head_size, Panel* packed,
                                                                                   const WeightsOf& weights_of) {
  for (Index head = 0; head < shape.heads; ++head) {
    for (Index first = 0; first < shape.blocks_per_head * shape.units; first += shape.units) {
      for (int gate = 0; gate < gates; ++gate) {
        const Index rest = PanelInputs<Panel>(gates * padded) - (gates - 1) * padded;
        packed = FillPanel(first, shape.units, 1, k_count, gate + 1 < gates ? padded : rest, head_size, packed,
                           weights_of(head, gate));
      }
    }
  }
  return packed;
}

#include "backend/cpu/dense/narrow.inl"
