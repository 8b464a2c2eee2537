// Forward engine of dense cells. The recurrent product of a tile (rows x one unit block x all gates) stays in
// registers and goes straight through the gates: nothing but wx is read and nothing but results is written.

#include "backend/cpu/dense/forward_pointwise.inl"

/// Fills in where the rows of a part are at a step.
template <class Panel, class Cell>
requires(!Custom<Cell>) void PlaceRows(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index slot_end,
                                       Index step, RowPlace<RealOf<Panel>>* places) {
  using Real = RealOf<Panel>;
  const RowPlan& plan = job.plan;
  const Index H = job.hidden, state = plan.rows * H;
  const Index rounded = RoundsOperands<Panel> ? job.heads * HeadStride<Panel>(H / job.heads) : 0;
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index row = plan.row_of[slot], time = plan.time(slot, step), offset = slot * H;
    const bool ends = step + 1 == plan.length[slot];
    RowPlace<Real>& place = places[slot];
    place.wx = job.wx == nullptr ? nullptr : job.wx + job.wx_row(slot, step) * job.wx_stride;
    place.h = job.h[step & 1] + offset;
    place.others = job.state + offset;
    const Index output = job.y_map.at(row, time);
    place.y = job.y == nullptr ? nullptr : job.y + output;
    place.y_bf16 = job.y_bf16 == nullptr ? nullptr : job.y_bf16 + output;
    place.next_h = ends ? job.last + offset : job.h[(step + 1) & 1] + offset;
    place.next_others = ends ? job.last + state + offset : job.state + offset;
    place.restarts = !ends && plan.resets(slot, step + 1);
    place.restart = place.restarts ? job.restarts.at(row, plan.time(slot, step + 1)) : nullptr;
    if (job.saved != nullptr) {
      const Index cell = plan.cells.at(row, time);
      place.saved = job.saved + cell * Cell::saved * H;
      place.prev = job.prev + cell * Cell::states * H;
    } else {
      place.saved = place.prev = nullptr;
    }
    place.every_state = job.every_state == nullptr ? nullptr : job.every_state + job.every_state_map.at(row, time);
    if constexpr (Cell::phases == 2) {
      place.operand = job.operand + offset;
      place.between = job.between + offset * Cell::saved;
    }
    if constexpr (RoundsOperands<Panel>) {
      place.rounded = job.rounded.h[(step + 1) & 1] + slot * rounded;
      if constexpr (Cell::phases == 2) place.rounded_operand = job.rounded.operand + slot * rounded;
    }
  }
}

/// Start of a tile: units counted within their head.
template <class Real>
struct TilePlace {
  const RowPlace<Real>* rows;  // from the first slot on
  Index head, first_unit;
};

/// Gates [first_gate, first_gate + gate_count) of a cell and how they are computed: from which operand, through which
/// panels. Tiles know the number of gates and call the cell's functions by pointers. They are therefore compiled once
/// for all cells with as many gates.
template <class Panel>
struct GateGroup {
  using Real = RealOf<Panel>;
  using V = typename Lanes<Real>::V;
  const OperandOf<Panel>* operand;  // [B, H] or, rounded, [B, heads, inputs] in slot order
  const Panel* panels;
  const Panel* input_panels;
  Index first_gate, gates;  // gates: G, those of the whole cell
  void (*fetch)(const RowPlace<Real>* rows, int count, Index hidden, Index first_unit, bool streams);
  using Compute = void (*)(const DenseForward<Real>& job, const TilePlace<Real>& place, int rows, int blocks,
                           const V* of_input, const V* of_state);
  Compute compute;         // for tiles as wide as the panels
  Compute compute_vector;  // for a single vector of units
};

/// Computes the gates of a tile's parts from the sums of_input and of_state [parts][gate_count * width]. of_input is
/// null where wx has the input product.
template <class Panel, class Cell, int first_gate, int gate_count, int width>
requires(!Custom<Cell>) void TileGates(const DenseForward<RealOf<Panel>>& job, const TilePlace<RealOf<Panel>>& place,
                                       int rows, int blocks, const typename Lanes<RealOf<Panel>>::V* of_input,
                                       const typename Lanes<RealOf<Panel>>::V* of_state) {
  using L = Lanes<RealOf<Panel>>;
  using V = GatesOf<Panel>;
  const Index head_size = job.hidden / job.heads;
  const Index head_unit = place.head * head_size, head_operand = place.head * HeadStride<Panel>(head_size);
  const ForwardPointwise<Panel, Cell> pointwise{job.hidden, job.plan.rows * job.hidden, job.restarts.state,
                                                job.streams};
  const bool input_is_there = job.wx != nullptr;
  for (int p = 0; p < rows * blocks; ++p) {
    const int sums = p * gate_count * width;
    const RowPlace<RealOf<Panel>>& row = place.rows[rows > 1 ? p : 0];
    const Index first_unit = blocks > 1 ? place.first_unit + p * width * L::lanes : place.first_unit;
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      if (count <= 0) break;
      const Site<RealOf<Panel>> at{row, head_unit + unit, count, head_operand + unit};
      V wx[Cell::gates], rh[Cell::gates];
      if constexpr (Cell::phases == 2) {  // the gates of the other phase
        for (int g = 0; g < Cell::gates; ++g) wx[g] = rh[g] = V(0);
      }
      for (int g = 0; g < gate_count; ++g) rh[first_gate + g] = of_state[sums + g * width + w];
      if (input_is_there) {
        pointwise.template load_gates<first_gate, gate_count>(at, wx);
      } else {
        for (int g = 0; g < gate_count; ++g) wx[first_gate + g] = of_input[sums + g * width + w];
      }
      if constexpr (Cell::phases == 1) {
        pointwise.single_phase(at, wx, rh);
      } else if constexpr (first_gate > 0) {
        pointwise.second_phase(at, wx, rh);
      } else {
        pointwise.first_phase(at, wx, rh);
      }
    }
  }
}

/// Prefetches what the gates of some rows will touch for one block of `width` vectors of units: some lines in many
/// places. The product that follows takes longer than memory does.
template <class Cell, int first_gate, int gate_count, int width, class Real>
requires(!Custom<Cell>) void FetchRows(const RowPlace<Real>* rows, int count, Index hidden, Index first_unit,
                                       bool streams) {
  constexpr bool last_phase = first_gate + gate_count == Cell::gates;  // the one that writes results
  for (int m = 0; m < count; ++m) {
    const RowPlace<Real>& row = rows[m];
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * Lanes<Real>::lanes;
      for (int g = first_gate; row.wx != nullptr && g < first_gate + gate_count; ++g) {
        hwy::Prefetch(row.wx + g * hidden + unit);
      }
      if constexpr (last_phase) {
        if (row.y != nullptr) hwy::Prefetch(row.y + unit);
        if (row.y_bf16 != nullptr) hwy::Prefetch(row.y_bf16 + unit);
        if (row.saved == nullptr || (StreamsLines<Real> && streams)) continue;
        for (int i = 0; i < Cell::saved; ++i) hwy::Prefetch(row.saved + i * hidden + unit);
        for (int k = 0; k < Cell::states; ++k) hwy::Prefetch(row.prev + k * hidden + unit);
      }
    }
  }
}

/// A tile of `rows` slots and one block of units, or of one slot and `blocks` of them. Several heads of a `narrow` one
/// share a vector.
template <class Panel, int gate_count, int width, int rows, int blocks, bool narrow = false>
struct ForwardTile {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  static_assert(rows == 1 || blocks == 1);
  static constexpr int parts = rows * blocks, vectors = gate_count * width;
  static constexpr Index units = width * L::lanes;
  const DenseForward<Real>& job;
  const GateGroup<Panel>& group;
  const RowPlace<Real>* places;        // in slot order
  Index slot, step, head, first_unit;  // of the first part

  HWY_INLINE Index head_size() const { return job.hidden / job.heads; }
  HWY_INLINE Index slot_of(int part) const { return rows > 1 ? slot + part : slot; }
  HWY_INLINE Index unit_of(int part) const { return blocks > 1 ? first_unit + part * units : first_unit; }

  HWY_INLINE void start(const Real* bias, V (&acc)[parts][vectors]) const {
    for (int b = 0; b < blocks; ++b) {
      LoadBias<Real, gate_count, width>(bias + group.first_gate * job.hidden, job.hidden, head_size(), head, unit_of(b),
                                        acc[b]);
    }
    for (int m = 1; m < rows; ++m) {
      for (int v = 0; v < vectors; ++v) acc[m][v] = acc[0][v];
    }
  }

  HWY_INLINE void add_input(const Panel* panel, V (&acc)[parts][vectors]) const {
    const OperandOf<Panel>* x[rows];
    for (int m = 0; m < rows; ++m) x[m] = InputRow<Panel>(job, slot + m, step);
    if constexpr (blocks > 1) {
      AccumulatePanels<Real, blocks, vectors>(x[0], job.input, panel,
                                              PanelInputs<Panel>(job.input) * gate_count * units, acc);
    } else {
      AccumulatePanel<Real, rows, vectors>(x, job.input, panel, acc);
    }
  }

  HWY_INLINE void add_recurrent(const Panel* panel, V (&acc)[parts][vectors]) const {
    const Index head_stride = HeadStride<Panel>(head_size()), stride = job.heads * head_stride;
    const OperandOf<Panel>* h = group.operand + slot * stride + head * head_stride;
    if constexpr (narrow) {
      for (int m = 0; m < rows; ++m) {
        AccumulateNarrow<gate_count, width>(h + m * stride + first_unit, stride - first_unit, job.mixed, panel, acc[m]);
      }
    } else if constexpr (blocks > 1) {
      AccumulatePanels<Real, blocks, vectors>(h, head_size(), panel,
                                              PanelInputs<Panel>(head_size()) * gate_count * units, acc);
    } else {
      AccumulateRows<Real, rows, vectors>(h, stride, head_size(), panel, acc);
    }
  }

  HWY_INLINE void fetch() const {
    const RowPlace<Real>* from = places + slot;
    for (int b = 0; b < blocks; ++b) {
      group.fetch(from, rows, job.hidden, head * head_size() + unit_of(b), job.streams);
    }
  }

  /// Runs from the panels of the first block on.
  HWY_INLINE void run(const Panel* panel, const Panel* input_panel) const {
    fetch();
    V acc[parts][vectors], of_input[parts][vectors], of_state[parts][vectors];
    const bool input_is_there = job.wx != nullptr;
    if (!input_is_there) {
      start(job.bias_ih, acc);
      add_input(input_panel, acc);
      CopySums<Real>(acc, of_input);
    }
    start(job.bias_hh, acc);
    add_recurrent(panel, acc);
    CopySums<Real>(acc, of_state);
    group.compute(job, {places + slot, head, first_unit}, rows, blocks, input_is_there ? nullptr : of_input[0],
                  of_state[0]);
  }
};

#include "backend/cpu/dense/unpacked.inl"

/// ForwardTiles() of narrow heads.
template <int gate_count, int width>
void NarrowTiles(const DenseForward<float>& job, const GateGroup<float>& group, const RowPlace<float>* places,
                 const DensePart& part, Index slot_end, Index step) {
  constexpr Index units = width * Simd::lanes;
  constexpr int most_rows = 4;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    ForEachTile<most_rows>(part.slot_begin, slot_end, [&](auto rows, Index slot) HWY_ATTR {
      ForwardTile<float, gate_count, width, decltype(rows)::value, 1, true>{job,  group, places,       slot,
                                                                            step, 0,     block * units}
          .run(group.panels + block * job.mixed * gate_count * units,
               group.input_panels + block * job.input * gate_count * units);
    });
  }
}

/// All tiles of one part at one step for one group of gates.
template <int gate_count, int width, class Panel>
void ForwardTiles(const DenseForward<RealOf<Panel>>& job, const GateGroup<Panel>& group,
                  const RowPlace<RealOf<Panel>>* places, const DensePart& part, Index slot_end, Index step) {
  using Real = RealOf<Panel>;
  constexpr int vectors = gate_count * width;
  constexpr Index units = width * Lanes<Real>::lanes;
  const Index head_size = job.hidden / job.heads;
  const Index blocks_per_head = (head_size + units - 1) / units;
  if constexpr (std::is_same_v<Panel, Real>) {
    if (job.weight_hh != nullptr) {
      return UnpackedTiles<gate_count, width>(job, group, places, part, slot_end, step);
    }
  }
  if constexpr (std::is_same_v<Panel, float>) {
    if (job.mixed < head_size) {
      return NarrowTiles<gate_count, width>(job, group, places, part, slot_end, step);
    }
  }
  const auto run = [&](auto rows, auto blocks, Index slot, Index block) HWY_ATTR {
    ForwardTile<Panel, gate_count, width, decltype(rows)::value, decltype(blocks)::value>{
        job, group, places, slot, step, block / blocks_per_head, block % blocks_per_head * units}
        .run(group.panels + block * PanelInputs<Panel>(head_size) * gate_count * units,
             group.input_panels + block * PanelInputs<Panel>(job.input) * gate_count * units);
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  // A single row of fewer than four sums a block would leave the multipliers waiting for each other.
  const bool paired = slot_end - part.slot_begin == 1 && vectors < 4;
  ForEachBlock(part, step, paired ? blocks_per_head : 1, [&](Index block, Index count) HWY_ATTR {
    if (count == 2) return run(one, two, part.slot_begin, block);
    ForEachTile<MaxTileRows<Panel, vectors>()>(part.slot_begin, slot_end,
                                               [&](auto rows, Index slot) HWY_ATTR { run(rows, one, slot, block); });
  });
}

/// An overload serves panels whose products work in another way.
template <int gate_count, int width, class Panel>
void ForwardGroup(const DenseForward<RealOf<Panel>>& job, const GateGroup<Panel>& group,
                  const RowPlace<RealOf<Panel>>* places, const DensePart& part, Index slot_end, Index step) {
  ForwardTiles<gate_count, width>(job, group, places, part, slot_end, step);
}

/// Finishes a step of the rows of a part, when all their units have sums. Built-in cells have nothing left to do; there
/// is another for cells whose equations are in the job.
template <class Cell, class Real>
requires(!Custom<Cell>) HWY_INLINE void FinishStep(const DenseForward<Real>&, const DensePart&, Index) {}

/// The operand of the products of a step: of the first group of gates, or of the second. The scale of an operand of
/// int8 follows from all units of its row. Each of those who share the slots of a part rounds them for itself, which
/// takes less time than to wait for each other once more.
template <class Panel>
const OperandOf<Panel>* StateOperand(const DenseForward<RealOf<Panel>>& job, [[maybe_unused]] const DensePart& part,
                                     [[maybe_unused]] Index slot_end, Index step) {
  if constexpr (Int8<Panel>) {
    return RoundHeads(job, part, slot_end, job.h[step & 1]);
  } else if constexpr (RoundsOperands<Panel>) {
    return job.rounded.h[step & 1];
  } else {
    return job.h[step & 1];
  }
}
template <class Panel>
const OperandOf<Panel>* SecondOperand(const DenseForward<RealOf<Panel>>& job, [[maybe_unused]] const DensePart& part,
                                      [[maybe_unused]] Index slot_end) {
  if constexpr (Int8<Panel>) {
    return RoundHeads(job, part, slot_end, job.operand);
  } else if constexpr (RoundsOperands<Panel>) {
    return job.rounded.operand;
  } else {
    return job.operand;
  }
}

/// Rounds the states that enter the first step.
template <class Panel>
void RoundStates(const DenseForward<RealOf<Panel>>& job, const DensePart& part) {
  const Index head_size = job.hidden / job.heads, inputs = HeadStride<Panel>(head_size);
  for (Index slot = part.slot_begin + part.member; slot < part.slot_end; slot += part.members) {
    for (Index head = 0; head < job.heads; ++head) {
      RoundRow(job.h[0] + slot * job.hidden + head * head_size, head_size, inputs,
               job.rounded.h[0] + (slot * job.heads + head) * inputs);
    }
  }
}

template <class Panel, class Cell, int first_gate, int gate_count, int width>
GateGroup<Panel> GroupOf(const OperandOf<Panel>* operand, const Panel* panels, const Panel* input_panels) {
  using Real = RealOf<Panel>;
  return {operand,
          panels,
          input_panels,
          first_gate,
          Cell::gates,
          &FetchRows<Cell, first_gate, gate_count, width, Real>,
          &TileGates<Panel, Cell, first_gate, gate_count, width>,
          &TileGates<Panel, Cell, first_gate, gate_count, 1>};
}

template <class Panel, class Cell, int width>
void ForwardSteps(const DenseForward<RealOf<Panel>>& job, const DensePart& part) {
  using Real = RealOf<Panel>;
  constexpr int first = FirstGroup<Cell>();
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<Real>::lanes;
  const Index blocks = (head_size + units - 1) / units * job.heads;
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  const Panel* const input_panels = reinterpret_cast<const Panel*>(job.packed_input);
  const auto second = [&](const Panel* all, Index inputs) {
    return all == nullptr ? nullptr : all + blocks * PanelInputs<Panel>(inputs) * first * units;
  };
  const Panel* const second_panels = second(panels, job.mixed);
  const Panel* const second_input_panels = second(input_panels, job.input);
  const bool given = job.wx != nullptr && input_panels == nullptr;  // x holds the input product
  const Index steps = std::min(job.plan.length[part.slot_begin], job.step_end);
  RowPlace<Real>* const places = job.places + part.member * job.plan.rows;
  GateGroup<Panel> group = GroupOf<Panel, Cell, 0, first, width>(nullptr, panels, input_panels);
  PanelUse<Panel> use;
  use.set_rows(part.slot_end - part.slot_begin);
  if constexpr (RoundsOperands<Panel>) {
    if (job.step_begin == 0) RoundStates<Panel>(job, part);
  }
  Index slot_end = part.slot_end;
  for (Index step = job.step_begin; step < steps; ++step) {
    while (job.plan.length[slot_end - 1] <= step) --slot_end;
    if constexpr (RoundsOperands<Panel> || Int8<Panel>) {
      if (!given && job.step_of_piece(step) == 0) {
        RoundPiece<Panel>(job, part, step, std::min(step + job.piece, steps));
      }
    }
    if (job.wx != nullptr && job.step_of_piece(step) == 0) {
      const Index end = std::min(step + job.piece, steps);
      if (given) {
        GivenProduct<Cell, width>(job, part, step, end);
      } else {
        use.set_rows((part.slot_end - part.slot_begin) * (end - step));
        InputProduct<Panel, first, width>(job, 0, input_panels, part, step, end);
        if constexpr (Cell::phases == 2) {
          InputProduct<Panel, Cell::gates - first, width>(job, first, second_input_panels, part, step, end);
        }
        use.set_rows(part.slot_end - part.slot_begin);
      }
    }
    PlaceRows<Panel, Cell>(job, part, slot_end, step, places);
    group.operand = StateOperand<Panel>(job, part, slot_end, step);
    ForwardGroup<first, width>(job, group, places, part, slot_end, step);
    if constexpr (Cell::phases == 2) {
      constexpr int rest = Cell::gates - first;
      if (part.barrier != nullptr) part.barrier->wait();
      const GateGroup<Panel> second_group = GroupOf<Panel, Cell, first, rest, width>(
          SecondOperand<Panel>(job, part, slot_end), second_panels, second_input_panels);
      ForwardGroup<rest, width>(job, second_group, places, part, slot_end, step);
    }
    FinishStep<Cell>(job, part, slot_end);
    if (part.barrier != nullptr) part.barrier->wait();
  }
  if (job.streams) hwy::FlushStream();
}

template <class Panel, class Cell>
void RunDenseForward(const DenseForward<RealOf<Panel>>& job, const DensePart& part) {
  if (part.slot_begin >= part.slot_end) return;
  constexpr int gates = FirstGroup<Cell>();
  constexpr int most = MaxBlockVectors<RealOf<Panel>>(gates);
  const int width = BlockVectors<RealOf<Panel>>(gates, job.hidden / job.heads);
  if (width == 1) return ForwardSteps<Panel, Cell, 1>(job, part);
  if constexpr (most >= 2) {
    if (width == 2) return ForwardSteps<Panel, Cell, 2>(job, part);
  }
  if constexpr (most >= 4) return ForwardSteps<Panel, Cell, 4>(job, part);
}

template <class Panel, class Cell>
PanelShape ForwardPanels(Index hidden, Index heads) {
  PanelShape shape = ShapeOfPanels<Panel>(FirstGroup<Cell>(), hidden, heads);
  shape.size = PanelReals<Panel>(shape.blocks * shape.units * PanelInputs<Panel>(shape.mixed) * Cell::gates);
  return shape;
}

template <class Panel, class Cell>
void PackForward(Index hidden, Index heads, StoredWeights<RealOf<Panel>> weight_hh, RealOf<Panel>* packed) {
  constexpr int first = FirstGroup<Cell>();
  const Index size = hidden / heads;
  // A second group uses the width of the first, so that both cut the units into the same blocks.
  const PanelShape shape = ShapeOfPanels<Panel>(first, hidden, heads);
  if constexpr (std::is_same_v<Panel, float>) {
    if (shape.heads < heads) return PackNarrow<Cell>(shape, hidden, weight_hh.reals, packed);
  }
  WithStored<Panel>(weight_hh, size, [&](auto weights) {
    const auto fill = [&](int first_gate, int count, Panel* panels) {
      return FillPanels(shape, count, size, size, panels, [&](Index head) {
        return PanelWeights{weights + (head * Cell::gates + first_gate) * size * size, size * size, 1, size};
      });
    };
    Panel* second = fill(0, first, reinterpret_cast<Panel*>(packed));
    if constexpr (Cell::phases == 2) fill(first, Cell::gates - first, second);
  });
}
