// One step of one row of a dense cell: the input and the recurrent product of a block of units stay in registers and go
// straight through the gates.

template <class Panel, class Cell>
struct StepPointwise {
  using Real = RealOf<Panel>;
  using L = LanesOf<Panel>;
  using V = GatesOf<Panel>;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  static_assert(S <= kMostStates);
  const CellStep<Real>& job;
  bool h_is_read;  // by all who need the old one: the new one may take its place

  HWY_INLINE void load_state(Index unit, Index count, V (&prev)[S]) const {
    for (int k = 0; k < S; ++k) prev[k] = L::load(job.state[k] + unit, count);
  }

  HWY_INLINE void finish(Index unit, Index count, const V (&next)[S]) const {
    L::store(next[0], job.y + unit, count);
    if (h_is_read) L::store(next[0], job.state[0] + unit, count);
    for (int k = 1; k < S; ++k) L::store(next[k], job.state[k] + unit, count);
  }

  template <bool second>
  HWY_INLINE void gates(Index unit, Index count, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], next[S], save[N];
    load_state(unit, count, prev);
    if constexpr (Cell::phases == 1) {
      Cell::forward(wx, rh, prev, next, save);
      finish(unit, count, next);
    } else if constexpr (second) {
      for (int i = 0; i < Cell::first_gates; ++i) save[i] = L::load(job.between + i * job.hidden + unit, count);
      Cell::forward_second(wx, rh, prev, next, save);
      finish(unit, count, next);
    } else {
      V operand;
      Cell::forward_first(wx, rh, prev, operand, save);
      L::store(operand, job.operand + unit, count);
      for (int i = 0; i < Cell::first_gates; ++i) L::store(save[i], job.between + i * job.hidden + unit, count);
    }
  }
};

/// A block of `width` vectors of units from vector `first` of a head on, gates [first_gate, first_gate + gate_count).
/// Narrow heads are one head of all units.
template <class Panel, class Cell, int first_gate, int gate_count, int width, bool narrow>
HWY_NOINLINE void StepBlock(const CellStep<RealOf<Panel>>& job, const StepOperand<Panel>* x,
                            const StepOperand<Panel>* operand, const Panel* panel, Index head, Index first,
                            bool h_is_read) {
  using L = LanesOf<Panel>;
  using V = typename L::V;
  constexpr int vectors = gate_count * width;
  const Index head_size = narrow ? job.hidden : job.head_size, first_unit = first * L::lanes;
  V of_input[1][vectors], of_state[1][vectors];
  StepSums<Panel>(x, job.input, panel, job.far, of_input);
  const Panel* const state_panel = panel + StepPanelSize<Panel>(job.input, vectors);
  if constexpr (narrow) {
    NarrowStepSums<Panel, gate_count, width>(operand + first_unit, head_size - first_unit, job.head_size, state_panel,
                                             of_state);
  } else {
    const Index stride = Int8<Panel> ? HeadStride<Panel>(head_size) : head_size;
    StepSums<Panel>(operand + head * stride, head_size, state_panel, job.far, of_state);
  }
  const StepPointwise<Panel, Cell> pointwise{job, h_is_read};
  // Unrolled, so that the sums stay in registers.
  HWY_UNROLL(8)
  for (int w = 0; w < width; ++w) {
    const Index unit = first_unit + w * L::lanes, count = std::min<Index>(L::lanes, head_size - unit);
    GatesOf<Panel> wx[Cell::gates], rh[Cell::gates];
    if constexpr (Cell::phases == 2) {  // the gates of the other phase
      for (int g = 0; g < Cell::gates; ++g) wx[g] = rh[g] = GatesOf<Panel>(0);
    }
    for (int g = 0; g < gate_count; ++g) {
      wx[first_gate + g] = of_input[0][g * width + w];
      rh[first_gate + g] = of_state[0][g * width + w];
    }
    pointwise.template gates<(first_gate > 0)>(head * head_size + unit, count, wx, rh);
  }
}

/// Elements of the panels of a vector of units.
template <class Panel>
constexpr Index DenseStepVectorSize(int gates, Index input, Index head_size) {
  return StepPanelSize<Panel>(input, gates) + StepPanelSize<Panel>(head_size, gates);
}

/// All blocks of one group of gates, from which operand [H], through which panels.
template <class Panel, class Cell, int first_gate, int gate_count, bool narrow>
HWY_INLINE void StepGates(const CellStep<RealOf<Panel>>& job, const StepBlocks& blocks, const StepOperand<Panel>* x,
                          const RealOf<Panel>* state, const Panel* panels, bool h_is_read) {
  const StepOperand<Panel>* const operand = StepState<Panel>(job, state);
  const Index size = DenseStepVectorSize<Panel>(gate_count, job.input, job.head_size);
  WithStepWidth<Panel, gate_count, narrow>(blocks.width, [&](auto width) HWY_ATTR {
    ForEachStepBlock<decltype(width)::value>(
        narrow ? 1 : job.heads, blocks, job.backwards, [&](auto vectors, Index head, Index first) HWY_ATTR {
          StepBlock<Panel, Cell, first_gate, gate_count, decltype(vectors)::value, narrow>(
              job, x, operand, panels + (head * blocks.vectors + first) * size, head, first, h_is_read);
        });
  });
}

template <class Panel, class Cell, bool narrow = false>
HWY_INLINE void DenseStep(const CellStep<RealOf<Panel>>& job) {
  using L = LanesOf<Panel>;
  constexpr int first = FirstGroup<Cell>(), rest = Cell::gates - first;
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  const Index heads = narrow ? 1 : job.heads, head_size = narrow ? job.hidden : job.head_size;
  const StepBlocks blocks = BlocksOfStep<Panel>(first, head_size, narrow);
  const StepOperand<Panel>* const x = StepInput<Panel>(job);
  if constexpr (Cell::phases == 2) {
    const Index size = heads * blocks.vectors * DenseStepVectorSize<Panel>(first, job.input, job.head_size);
    StepGates<Panel, Cell, 0, first, narrow>(job, blocks, x, job.state[0], panels, false);
    StepGates<Panel, Cell, first, rest, narrow>(job, BlocksOfStep<Panel>(rest, head_size, narrow), x, job.operand,
                                                panels + size, true);
    return;
  }
  if (heads == 1 && blocks.vectors == blocks.width) {  // one block, whose h has been read once its sums are made
    return WithStepWidth<Panel, first, narrow>(blocks.width, [&](auto width) HWY_ATTR {
      StepBlock<Panel, Cell, 0, first, decltype(width)::value, narrow>(job, x, StepState<Panel>(job, job.state[0]),
                                                                       panels, 0, 0, true);
    });
  }
  StepGates<Panel, Cell, 0, first, narrow>(job, blocks, x, job.state[0], panels, false);
  for (Index unit = 0; unit < job.hidden; unit += L::lanes) {
    const Index count = std::min<Index>(L::lanes, job.hidden - unit);
    L::store(L::load(job.y + unit, count), job.state[0] + unit, count);
  }
}

template <class Panel, class Cell>
void RunDenseStep(const CellStep<RealOf<Panel>>& job) {
  if constexpr (std::is_same_v<Panel, float>) {
    if (NarrowHeads<Panel>(job.hidden, job.heads)) return DenseStep<Panel, Cell, true>(job);
  }
  WithStepPanel<Panel>(job.head_size, [&](auto tag) HWY_ATTR { DenseStep<typename decltype(tag)::type, Cell>(job); });
}

template <class Panel, class Cell>
std::size_t DenseStepPanels(Index input, Index hidden, Index heads) {
  const Index mixed = hidden / heads, head_size = NarrowHeads<Panel>(hidden, heads) ? hidden : mixed;
  const auto size = [&](auto tag) HWY_ATTR {
    using P = typename decltype(tag)::type;
    const Index vectors = hidden / head_size * BlocksOfStep<P>(Cell::gates, head_size).vectors;
    return PanelReals<P>(vectors * DenseStepVectorSize<P>(Cell::gates, input, mixed));
  };
  return head_size > mixed ? size(std::type_identity<Panel>()) : WithStepPanel<Panel>(head_size, size);
}

template <class Panel, class Cell>
void PackDenseStep(Index input, Index hidden, Index heads, const StepWeights<RealOf<Panel>>& weights,
                   RealOf<Panel>* packed) {
  constexpr int first = FirstGroup<Cell>(), rest = Cell::gates - first;
  const auto pack = [&](auto tag) HWY_ATTR {
    auto* const panels = reinterpret_cast<typename decltype(tag)::type*>(packed);
    auto* const second = PackStepGates(input, hidden, heads, Cell::gates, 0, first, weights, panels);
    if constexpr (rest > 0) PackStepGates(input, hidden, heads, Cell::gates, first, rest, weights, second);
  };
  if (NarrowHeads<Panel>(hidden, heads)) return pack(std::type_identity<Panel>());
  WithStepPanel<Panel>(hidden / heads, pack);
}
