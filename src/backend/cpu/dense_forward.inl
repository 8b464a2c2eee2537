// Forward engine of dense cells. The recurrent product of a tile (rows x one unit block x all gates) stays in
// registers and goes straight through the gates: nothing but wx is read and nothing but results is written.

/// One vector of units of one slot at one step: which elements they are in every buffer.
struct Site {
  Index slot, step, cell, unit, count;
};

template <class Real, class Cell>
struct ForwardPointwise {
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  const DenseForward<Real>& job;

  /// Adds the input product where it was made beforehand.
  template <int first, int count>
  HWY_INLINE void add_gates(const Site& at, V (&wx)[G]) const {
    for (int g = first; g < first + count; ++g) {
      wx[g] = L::load(job.wx + (at.cell * G + g) * job.hidden + at.unit, at.count) + wx[g];
    }
  }

  HWY_INLINE void load_state(const Site& at, V (&prev)[S]) const {
    prev[0] = L::load(job.h[at.step & 1] + at.slot * job.hidden + at.unit, at.count);
    for (int k = 1; k < S; ++k) prev[k] = L::load(other_state(at, k), at.count);
  }

  HWY_INLINE Real* other_state(const Site& at, int k) const {
    return job.state + ((k - 1) * job.plan.rows + at.slot) * job.hidden + at.unit;
  }

  HWY_INLINE Real* between(const Site& at, int i) const {
    return job.between + (at.slot * N + i) * job.hidden + at.unit;
  }

  /// Writes the output, what training needs, and the state for the next step, cleared if a reset comes before it.
  HWY_INLINE void finish(const Site& at, const V (&prev)[S], const V (&next)[S], const V (&save)[N]) const {
    const RowPlan& plan = job.plan;
    const Index row = plan.row_of[at.slot];
    L::store(next[0], job.y + job.y_map.at(row, plan.time(at.slot, at.step)) + at.unit, at.count);
    if (job.saved != nullptr) {
      for (int i = 0; i < N; ++i) L::store(save[i], job.saved + (at.cell * N + i) * job.hidden + at.unit, at.count);
      for (int k = 0; k < S; ++k) L::store(prev[k], job.prev + (at.cell * S + k) * job.hidden + at.unit, at.count);
    }
    if (at.step + 1 == plan.length[at.slot]) {
      for (int k = 0; k < S; ++k) {
        L::store(next[k], job.last + (k * plan.rows + at.slot) * job.hidden + at.unit, at.count);
      }
      return;
    }
    const bool clear = plan.resets(at.slot, at.step + 1);
    const V zero(0);
    L::store(clear ? zero : next[0], job.h[(at.step + 1) & 1] + at.slot * job.hidden + at.unit, at.count);
    for (int k = 1; k < S; ++k) L::store(clear ? zero : next[k], other_state(at, k), at.count);
  }

  HWY_INLINE void single_phase(const Site& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], next[S], save[N];
    load_state(at, prev);
    Cell::forward(wx, rh, prev, next, save);
    finish(at, prev, next, save);
  }

  HWY_INLINE void first_phase(const Site& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], save[N], operand;
    load_state(at, prev);
    Cell::forward_first(wx, rh, prev, operand, save);
    L::store(operand, job.operand + at.slot * job.hidden + at.unit, at.count);
    for (int i = 0; i < Cell::first_gates; ++i) L::store(save[i], between(at, i), at.count);
  }

  HWY_INLINE void second_phase(const Site& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], next[S], save[N];
    load_state(at, prev);
    for (int i = 0; i < Cell::first_gates; ++i) save[i] = L::load(between(at, i), at.count);
    Cell::forward_second(wx, rh, prev, next, save);
    finish(at, prev, next, save);
  }
};

/// Gates [first, first + count) of a cell and how they are computed: from which operand, through which panels.
template <class Real>
struct GateGroup {
  const Real* operand;  // [B, H] in slot order
  const Real* panels;
  const Real* input_panels;
  bool second;  // second phase of a two-phase cell
};

/// Sums begin with their bias: gates [first_gate, first_gate + gate_count) of the units from `first_unit` on.
template <class Real, int first_gate, int gate_count, int width>
HWY_INLINE void LoadBias(const Real* bias, Index hidden, Index head_size, Index head, Index first_unit,
                         typename Lanes<Real>::V (&start)[gate_count * width]) {
  using L = Lanes<Real>;
  for (int g = 0; g < gate_count; ++g) {
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      start[g * width + w] =
          count > 0 ? L::load(bias + (first_gate + g) * hidden + head * head_size + unit, count) : typename L::V(0);
    }
  }
}

template <class V, int rows, int vectors>
HWY_INLINE void Spread(const V (&start)[vectors], V (&acc)[rows][vectors]) {
  for (int m = 0; m < rows; ++m) {
    for (int v = 0; v < vectors; ++v) acc[m][v] = start[v];
  }
}

template <class Real, class Cell, int first_gate, int gate_count, int width, int rows>
HWY_INLINE void ForwardTile(const DenseForward<Real>& job, const GateGroup<Real>& group, Index slot, Index step,
                            Index head, Index first_unit, const Real* panel, const Real* input_panel) {
  using L = Lanes<Real>;
  using V = typename L::V;
  constexpr int vectors = gate_count * width;
  const Index head_size = job.hidden / job.heads;
  const Real* a[rows];
  V start[vectors], of_input[rows][vectors], acc[rows][vectors];
  LoadBias<Real, first_gate, gate_count, width>(job.bias_ih, job.hidden, head_size, head, first_unit, start);
  Spread(start, of_input);
  if (job.wx == nullptr) {
    for (int m = 0; m < rows; ++m) {
      a[m] = job.x + job.x_map.at(job.plan.row_of[slot + m], job.plan.time(slot + m, step));
    }
    AccumulatePanel<Real, rows, vectors>(a, job.input, input_panel, of_input);
  }
  for (int m = 0; m < rows; ++m) a[m] = group.operand + (slot + m) * job.hidden + head * head_size;
  LoadBias<Real, first_gate, gate_count, width>(job.bias_hh, job.hidden, head_size, head, first_unit, start);
  Spread(start, acc);
  AccumulatePanel<Real, rows, vectors>(a, head_size, panel, acc);

  const ForwardPointwise<Real, Cell> pointwise{job};
  for (int m = 0; m < rows; ++m) {
    const Index row = job.plan.row_of[slot + m];
    const Index cell = job.plan.cells.at(row, job.plan.time(slot + m, step));
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      if (count <= 0) break;
      const Site at{slot + m, step, cell, head * head_size + unit, count};
      V wx[Cell::gates], rh[Cell::gates];
      if constexpr (Cell::phases == 2) {  // the gates of the other phase
        for (int g = 0; g < Cell::gates; ++g) wx[g] = rh[g] = V(0);
      }
      for (int g = 0; g < gate_count; ++g) rh[first_gate + g] = acc[m][g * width + w];
      for (int g = 0; g < gate_count; ++g) wx[first_gate + g] = of_input[m][g * width + w];
      if (job.wx != nullptr) pointwise.template add_gates<first_gate, gate_count>(at, wx);
      if constexpr (Cell::phases == 1) {
        pointwise.single_phase(at, wx, rh);
      } else if (group.second) {
        pointwise.second_phase(at, wx, rh);
      } else {
        pointwise.first_phase(at, wx, rh);
      }
    }
  }
}

/// All tiles of one part at one step for one group of gates.
template <class Real, class Cell, int first_gate, int gate_count, int width>
void ForwardGroup(const DenseForward<Real>& job, const GateGroup<Real>& group, const DensePart& part, Index slot_end,
                  Index step) {
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<Real>::lanes;
  const Index blocks_per_head = (head_size + units - 1) / units;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const Index head = block / blocks_per_head;
    const Index first_unit = block % blocks_per_head * units;
    const Real* panel = group.panels + block * head_size * gate_count * units;
    const Real* input_panel = group.input_panels + block * job.input * gate_count * units;
    ForEachTile<MaxTileRows<Real>()>(part.slot_begin, slot_end, [&](auto rows, Index slot) HWY_ATTR {
      ForwardTile<Real, Cell, first_gate, gate_count, width, decltype(rows)::value>(job, group, slot, step, head,
                                                                                    first_unit, panel, input_panel);
    });
  }
}

/// Gates that share panels in the forward pass: all, or those of the first phase, whose width both phases use.
template <class Cell>
constexpr int FirstGroup() {
  if constexpr (Cell::phases == 2) {
    return Cell::first_gates;
  } else {
    return Cell::gates;
  }
}

template <class Real, class Cell, int width>
void ForwardSteps(const DenseForward<Real>& job, const DensePart& part) {
  constexpr int first = FirstGroup<Cell>();
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<Real>::lanes;
  const Index blocks = (head_size + units - 1) / units * job.heads;
  const Real* second_panels = job.packed + blocks * head_size * first * units;
  const Real* second_input_panels = job.packed_input + blocks * job.input * first * units;
  Index slot_end = part.slot_end;
  for (Index step = 0; step < job.plan.length[part.slot_begin]; ++step) {
    while (job.plan.length[slot_end - 1] <= step) --slot_end;
    ForwardGroup<Real, Cell, 0, first, width>(job, {job.h[step & 1], job.packed, job.packed_input, false}, part,
                                              slot_end, step);
    if constexpr (Cell::phases == 2) {
      if (part.barrier != nullptr) part.barrier->wait();
      ForwardGroup<Real, Cell, first, Cell::gates - first, width>(
          job, {job.operand, second_panels, second_input_panels, true}, part, slot_end, step);
    }
    if (part.barrier != nullptr) part.barrier->wait();
  }
}

template <class Real, class Cell>
void RunDenseForward(const DenseForward<Real>& job, const DensePart& part) {
  if (part.slot_begin >= part.slot_end) return;
  constexpr int gates = FirstGroup<Cell>();
  constexpr int most = MaxBlockVectors<Real>(gates);
  const int width = BlockVectors<Real>(gates, job.hidden / job.heads);
  if (width == 1) return ForwardSteps<Real, Cell, 1>(job, part);
  if constexpr (most >= 2) {
    if (width == 2) return ForwardSteps<Real, Cell, 2>(job, part);
  }
  if constexpr (most >= 4) return ForwardSteps<Real, Cell, 4>(job, part);
}

/// The panels of weight_ih, cut into the same blocks: all inputs of a block's units.
template <class Real, class Cell>
std::size_t DenseInputPanels(Index input, Index hidden, Index heads) {
  const PanelShape shape = ShapeOfPanels<Real>(FirstGroup<Cell>(), input, hidden / heads, heads);
  return static_cast<std::size_t>(shape.blocks * shape.units * input * Cell::gates);
}

template <class Real, class Cell>
void PackDenseInput(Index input, Index hidden, Index heads, const Real* weight_ih, Real* packed) {
  constexpr int first = FirstGroup<Cell>();
  const Index size = hidden / heads;
  const PanelShape shape = ShapeOfPanels<Real>(first, input, size, heads);
  const auto fill = [&](int first_gate, int count) {
    FillPanels<Real>(shape, count, input, size, heads, packed, [&](Index head, int gate, Index k, Index unit) {
      return weight_ih[((first_gate + gate) * hidden + head * size + unit) * input + k];
    });
    packed += shape.blocks * shape.units * input * count;
  };
  fill(0, first);
  if constexpr (Cell::phases == 2) fill(first, Cell::gates - first);
}

template <class Real, class Cell>
PanelShape ForwardPanels(Index hidden, Index heads) {
  const Index head_size = hidden / heads;
  PanelShape shape = ShapeOfPanels<Real>(FirstGroup<Cell>(), head_size, head_size, heads);
  shape.size = static_cast<std::size_t>(shape.blocks * shape.units * head_size * Cell::gates);
  return shape;
}

template <class Real, class Cell>
void PackForward(Index hidden, Index heads, const Real* weight_hh, Real* packed) {
  constexpr int first = FirstGroup<Cell>();
  const Index size = hidden / heads;
  // A second group uses the width of the first, so that both cut the units into the same blocks.
  const PanelShape shape = ShapeOfPanels<Real>(first, size, size, heads);
  const auto fill = [&](int first_gate, int count) {
    FillPanels<Real>(shape, count, size, size, heads, packed, [&](Index head, int gate, Index k, Index unit) {
      return weight_hh[((head * Cell::gates + first_gate + gate) * size + unit) * size + k];
    });
    packed += shape.blocks * shape.units * size * count;
  };
  fill(0, first);
  if constexpr (Cell::phases == 2) fill(first, Cell::gates - first);
}
