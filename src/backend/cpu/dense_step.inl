// One step of one row of a dense cell: input and recurrent product of a few blocks of units at a time, so that the sums
// of a single row keep the multipliers busy. Sums run in the order of the engine for sequences.

template <class Real, class Cell>
struct StepPointwise {
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  static_assert(S <= kMostStates);
  const CellStep<Real>& job;

  HWY_INLINE void load_state(Index unit, Index count, V (&prev)[S]) const {
    for (int k = 0; k < S; ++k) prev[k] = L::load(job.state_in[k] + unit, count);
  }

  HWY_INLINE void finish(Index unit, Index count, const V (&next)[S]) const {
    L::store(next[0], job.next + unit, count);
    for (int k = 1; k < S; ++k) L::store(next[k], job.state_out[k] + unit, count);
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

template <class Panel, class Cell, int first_gate, int gate_count, int width, int blocks>
HWY_INLINE void StepBlocks(const CellStep<RealOf<Panel>>& job, const GateGroup<Panel, RealOf<Panel>>& group, Index head,
                           Index block) {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  constexpr int vectors = gate_count * width;
  constexpr Index units = width * L::lanes;
  const Index head_size = job.hidden / job.heads;
  const Index global = head * ((head_size + units - 1) / units) + block;
  V of_input[blocks][vectors], acc[blocks][vectors];
  for (int p = 0; p < blocks; ++p) {
    const Index first_unit = (block + p) * units;
    LoadBias<Real, first_gate, gate_count, width>(job.bias_ih, job.hidden, head_size, head, first_unit, of_input[p]);
    LoadBias<Real, first_gate, gate_count, width>(job.bias_hh, job.hidden, head_size, head, first_unit, acc[p]);
  }
  const Index panel_size = PanelInputs<Panel>(head_size) * vectors * L::lanes;
  const Index input_panel_size = PanelInputs<Panel>(job.input) * vectors * L::lanes;
  AccumulatePanels<Real, blocks, vectors>(job.x, job.input, group.input_panels + global * input_panel_size,
                                          input_panel_size, of_input);
  AccumulatePanels<Real, blocks, vectors>(group.operand + head * head_size, head_size,
                                          group.panels + global * panel_size, panel_size, acc);
  const StepPointwise<Real, Cell> pointwise{job};
  for (int p = 0; p < blocks; ++p) {
    for (int w = 0; w < width; ++w) {
      const Index unit = (block + p) * units + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      if (count <= 0) break;
      V wx[Cell::gates], rh[Cell::gates];
      if constexpr (Cell::phases == 2) {
        for (int g = 0; g < Cell::gates; ++g) wx[g] = rh[g] = V(0);
      }
      for (int g = 0; g < gate_count; ++g) {
        wx[first_gate + g] = of_input[p][g * width + w];
        rh[first_gate + g] = acc[p][g * width + w];
      }
      pointwise.template gates<(first_gate > 0)>(head * head_size + unit, count, wx, rh);
    }
  }
}

template <class Panel, class Cell, int first_gate, int gate_count, int width>
HWY_INLINE void StepGroup(const CellStep<RealOf<Panel>>& job, const GateGroup<Panel, RealOf<Panel>>& group) {
  constexpr Index units = width * Lanes<RealOf<Panel>>::lanes;
  const Index head_size = job.hidden / job.heads;
  // As many sums as two multipliers of four cycles' latency need, if the registers hold them.
  constexpr int most = gate_count * width >= 6 ? 1 : gate_count * width >= 3 ? 2 : 4;
  for (Index head = 0; head < job.heads; ++head) {
    ForEachTile<most>(0, (head_size + units - 1) / units, [&](auto blocks, Index block) HWY_ATTR {
      StepBlocks<Panel, Cell, first_gate, gate_count, width, decltype(blocks)::value>(job, group, head, block);
    });
  }
}

template <class Panel, class Cell, int width>
HWY_INLINE void StepWidth(const CellStep<RealOf<Panel>>& job) {
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  const Panel* const input_panels = reinterpret_cast<const Panel*>(job.packed_input);
  constexpr int first = FirstGroup<Cell>();
  constexpr Index units = width * Lanes<RealOf<Panel>>::lanes;
  StepGroup<Panel, Cell, 0, first, width>(job, {job.state_in[0], panels, input_panels});
  if constexpr (Cell::phases == 2) {
    const Index head_size = job.hidden / job.heads;
    const Index in_first = (head_size + units - 1) / units * units * job.heads * first;
    StepGroup<Panel, Cell, first, Cell::gates - first, width>(
        job, {job.operand, panels + in_first * PanelInputs<Panel>(head_size),
              input_panels + in_first * PanelInputs<Panel>(job.input)});
  }
}

template <class Panel, class Cell>
void RunDenseStep(const CellStep<RealOf<Panel>>& job) {
  constexpr int gates = FirstGroup<Cell>();
  constexpr int most = MaxBlockVectors<RealOf<Panel>>(gates);
  const int width = BlockVectors<RealOf<Panel>>(gates, job.hidden / job.heads);
  if (width == 1) StepWidth<Panel, Cell, 1>(job);
  if constexpr (most >= 2) {
    if (width == 2) StepWidth<Panel, Cell, 2>(job);
  }
  if constexpr (most >= 4) {
    if (width == 4) StepWidth<Panel, Cell, 4>(job);
  }
  std::copy_n(job.next, job.hidden, job.y);
  std::copy_n(job.next, job.hidden, job.state_out[0]);
}
