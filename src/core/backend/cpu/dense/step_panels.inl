// Panels of a single step of a single row. Memory is what such a step waits for, so that its panels differ from those
// of the engines for sequences: blocks of units are wide enough for a single row's sums to keep the multipliers busy,
// and the panels of a block lie one behind the other, each with its biases before it, so that a step reads one stream,
// which hardware prefetches best. Every other step runs backwards: what the caches still hold of the panels is used
// before it is gone. Each sum runs in the order of the engines for sequences.

/// Vectors of units in a block: two multipliers of four cycles' latency want eight sums. A program in which size
/// counts, as the C runtime, has the widest blocks and single vectors, and nothing between them; of narrow heads the
/// latter alone.
#if PENSTOCK_RUNTIME
constexpr int MostStepVectors(int gates, bool narrow) { return narrow ? 1 : gates >= 3 ? 2 : 4; }
constexpr int NarrowerBlock(int) { return 1; }
#else
constexpr int MostStepVectors(int gates, bool) { return gates >= 3 ? 2 : gates == 2 ? 4 : 8; }
constexpr int NarrowerBlock(int width) { return width / 2; }
#endif

/// How the units of a head fall into blocks: `width` vectors each, then single ones.
struct StepBlocks {
  Index vectors, width;
};

template <class Panel>
inline StepBlocks BlocksOfStep(int gates, Index head_size, bool narrow = false) {
  constexpr Index lanes = LanesOf<Panel>::lanes;
  const Index vectors = (head_size + lanes - 1) / lanes;
  int width = MostStepVectors(gates, narrow);
  while (width > vectors) width = NarrowerBlock(width);
  return {vectors, width};
}

/// run(std::type_identity<P>()) with the elements P that panels of a head of so many units have: for vectors of half as
/// many lanes where those hold all units.
template <class Panel, class Run>
HWY_INLINE auto WithStepPanel([[maybe_unused]] Index head_size, const Run& run) {
#if PENSTOCK_NARROW_VECTORS
  if constexpr (std::is_same_v<Panel, float>) {
    if (head_size <= NarrowSimd::lanes) return run(std::type_identity<NarrowFloat>());
  }
#endif
  return run(std::type_identity<Panel>());
}

/// Elements that take the room of the biases of `vectors` vectors (units x gates). Those are not rounded: each takes
/// the room of a group.
template <class Panel>
constexpr Index StepBiasSize(Index vectors) {
  return PanelTraits<Panel>::group * vectors * LanesOf<Panel>::lanes;
}

/// Elements of the panel of `vectors` vectors with its biases.
template <class Panel>
constexpr Index StepPanelSize(Index k_count, Index vectors) {
  return StepBiasSize<Panel>(vectors) + PanelInputs<Panel>(k_count) * vectors * LanesOf<Panel>::lanes;
}

/// Calls visit(std::integral_constant<int, vectors>, head, first vector) for every block.
template <int width, class Visit>
HWY_INLINE void ForEachStepBlock(Index heads, const StepBlocks& blocks, bool backwards, const Visit& visit) {
  const Index wide = blocks.vectors / width, all = wide + blocks.vectors % width;
  for (Index h = 0; h < heads; ++h) {
    const Index head = backwards ? heads - 1 - h : h;
    for (Index i = 0; i < all; ++i) {
      const Index block = backwards ? all - 1 - i : i;
      if (width == 1 || block < wide) {
        visit(std::integral_constant<int, width>(), head, block * width);
      } else {
        visit(std::integral_constant<int, 1>(), head, wide * (width - 1) + block);
      }
    }
  }
}

/// Calls run(std::integral_constant<int, width>) for the width that the blocks have. A head of few units, whose panels
/// are for narrow vectors, has one.
template <class Panel, int gates, bool narrow, class Run, int width = MostStepVectors(gates, narrow)>
HWY_INLINE void WithStepWidth(Index wanted, const Run& run) {
  if constexpr (width == 1 || LanesOf<Panel>::lanes < LanesOf<RealOf<Panel>>::lanes) {
    run(std::integral_constant<int, 1>());
  } else {
    if (wanted == width) return run(std::integral_constant<int, width>());
    WithStepWidth<Panel, gates, narrow, Run, NarrowerBlock(width)>(wanted, run);
  }
}

/// sums = biases + the product of `a`, a block's units of narrow heads, with the panel behind them.
template <class Panel, int gates, int width>
HWY_INLINE void NarrowStepSums(const float* a, Index there, Index head_size, const Panel* panel,
                               Simd (&sums)[1][gates * width]) {
  for (int v = 0; v < gates * width; ++v) sums[0][v] = Lanes<float>::load(panel + v * Simd::lanes);
  AccumulateNarrow<gates, width>(a, there, head_size, panel + StepBiasSize<Panel>(gates * width), sums[0]);
}

/// What the panels of a step are multiplied with: reals, or of int8 what was rounded before.
template <class Panel>
using StepOperand = std::conditional_t<Int8<Panel>, std::int8_t, RealOf<Panel>>;

template <class Panel>
HWY_INLINE const StepOperand<Panel>* StepInput(const CellStep<RealOf<Panel>>& job) {
  if constexpr (Int8<Panel>) {
    RoundRow(job.x, job.input, OperandInputs<Panel>(job.input), job.rounded);
    return job.rounded;
  } else {
    return job.x;
  }
}

/// `state` [H], a state or what takes its place.
template <class Panel>
HWY_INLINE const StepOperand<Panel>* StepState(const CellStep<RealOf<Panel>>& job, const RealOf<Panel>* state) {
  if constexpr (Int8<Panel>) {
    const Index stride = HeadStride<Panel>(job.head_size);
    std::int8_t* const rounded = job.rounded + OperandInputs<Panel>(job.input);
    for (Index head = 0; head < job.heads; ++head) {
      RoundRow(state + head * job.head_size, job.head_size, stride, rounded + head * stride);
    }
    return rounded;
  } else {
    return state;
  }
}

/// sums = biases + a [k_count] times the panel behind them; one that lies `far` away is asked for ahead of time.
template <class Panel, int vectors>
HWY_INLINE void StepSums(const StepOperand<Panel>* a, Index k_count, const Panel* panel, [[maybe_unused]] bool far,
                         typename LanesOf<Panel>::V (&sums)[1][vectors]) {
  using Real = RealOf<Panel>;
  using L = LanesOf<Panel>;
  const Real* const bias = reinterpret_cast<const Real*>(panel);
  // Unrolled, or the compiler copies them by way of the stack, from where vectors cannot be read before they are in the
  // cache.
  HWY_UNROLL(8)
  for (int v = 0; v < vectors; ++v) sums[0][v] = L::load(bias + v * L::lanes);
  panel += StepBiasSize<Panel>(vectors);
  const StepOperand<Panel>* const row[1] = {a};
#if !PENSTOCK_RUNTIME
  if constexpr (!Rounded<Panel> && !Int8<Panel>) {
    constexpr Index ahead = 64;  // 4 KB: some 40 ns at the speed of a third-level cache
    if (far) return static_cast<void>(AccumulatePanel<Real, 1, vectors, ahead>(row, k_count, panel, sums));
  }
#endif
  AccumulatePanel<Real, 1, vectors>(row, k_count, panel, sums);
}

/// The biases of the units [first, first + units) of a head, from element(gate, unit). Returns their end.
template <class Panel, class Element>
Panel* FillStepBias(Index first, Index units, int gates, Index head_size, Panel* packed, const Element& element) {
  auto* bias = reinterpret_cast<RealOf<Panel>*>(packed);
  for (int gate = 0; gate < gates; ++gate) {
    for (Index u = first; u < first + units; ++u) *bias++ = u < head_size ? element(gate, u) : RealOf<Panel>(0);
  }
  return reinterpret_cast<Panel*>(bias);
}

/// The rows of a matrix of reals or of int8, `width` values each.
template <class Panel>
auto StepRows(const RealOf<Panel>* reals, [[maybe_unused]] const Int8Matrix& int8, [[maybe_unused]] Index width) {
  if constexpr (Int8<Panel>) {
    return Int8Rows{int8.values, int8.scales, width};
  } else {
    return reals;
  }
}

/// Packs gates [first_gate, first_gate + gates) out of all `all_gates`. Returns the panels' end.
template <class Panel>
Panel* PackStepGates(Index input, Index hidden, Index heads, int all_gates, int first_gate, int gates,
                     const StepWeights<RealOf<Panel>>& weights, Panel* packed) {
  using Real = RealOf<Panel>;
  const bool narrow = NarrowHeads<Panel>(hidden, heads);
  const Index mixed = hidden / heads, size = narrow ? hidden : mixed;
  const StepBlocks blocks = BlocksOfStep<Panel>(gates, size, narrow);
  for (Index head = 0; head < hidden / size; ++head) {
    const auto bias_of = [&](const Real* bias) {
      return [=](int gate, Index unit) {
        return bias == nullptr ? Real(0) : bias[(first_gate + gate) * hidden + head * size + unit];
      };
    };
    const PanelWeights of_input{
        StepRows<Panel>(weights.weight_ih, weights.int8_ih, input) + (first_gate * hidden + head * size) * input,
        hidden * input, Index{1}, input};
    const PanelWeights of_state{
        StepRows<Panel>(weights.weight_hh, weights.int8_hh, size) + (head * all_gates + first_gate) * size * size,
        size * size, Index{1}, size};
    for (Index vector = 0, width = 0; vector < blocks.vectors; vector += width) {
      width = blocks.vectors - vector >= blocks.width ? blocks.width : 1;
      const Index first = vector * LanesOf<Panel>::lanes, units = width * LanesOf<Panel>::lanes;
      packed = FillStepBias(first, units, gates, size, packed, bias_of(weights.bias_ih));
      packed = FillPanel(first, units, gates, input, PanelInputs<Panel>(input), size, packed, of_input);
      if (weights.weight_hh == nullptr && weights.int8_hh.values == nullptr) continue;
      packed = FillStepBias(first, units, gates, size, packed, bias_of(weights.bias_hh));
      if constexpr (std::is_same_v<Panel, float>) {
        if (narrow) {
          packed = FillNarrowPanel(first, units, hidden, gates, mixed, packed, [&](int gate, Index k, Index unit) {
            return NarrowRow(weights.weight_hh, all_gates, mixed, first_gate + gate, unit)[k];
          });
          continue;
        }
      }
      packed = FillPanel(first, units, gates, size, PanelInputs<Panel>(size), size, packed, of_state);
    }
  }
  return packed;
}
