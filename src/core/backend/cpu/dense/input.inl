// The input product of dense cells, W x + bias: for the steps of a piece at a time, few enough that the recurrence
// finds them in the cache. Sums run in the order of ForwardTile::add_input, so it does not matter where a sequence is
// cut.

/// Sums begin with their bias [gate_count, H], here of the units from `first_unit` on.
template <class Real, int gate_count, int width>
HWY_INLINE void LoadBias(const Real* bias, Index hidden, Index head_size, Index head, Index first_unit,
                         typename Lanes<Real>::V (&start)[gate_count * width]) {
  using L = Lanes<Real>;
  for (int g = 0; g < gate_count; ++g) {
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      start[g * width + w] = count > 0 ? L::load(bias + g * hidden + head * head_size + unit, count) : typename L::V(0);
    }
  }
}

/// Returns the operand of the product for the input of a step.
template <class Panel>
HWY_INLINE const OperandOf<Panel>* InputRow(const DenseForward<RealOf<Panel>>& job, Index slot, Index step) {
  if constexpr (RoundsOperands<Panel> || Int8<Panel>) {
    return reinterpret_cast<const OperandOf<Panel>*>(job.rounded.x) +
           job.rounded_row(slot, step) * OperandInputs<Panel>(job.input);
  } else {
    return job.x + job.x_map.at(job.plan.row_of[slot], job.plan.time(slot, step));
  }
}

/// Rounds the inputs of steps [begin, end), or copies them, for all who share the slots of a part.
template <class Panel>
void RoundPiece(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index begin, Index end) {
  const Index inputs = OperandInputs<Panel>(job.input);
  for (Index slot = part.slot_begin + part.member; slot < part.slot_end; slot += part.members) {
    for (Index step = begin; step < std::min(end, job.plan.length[slot]); ++step) {
      const Index from = job.x_map.at(job.plan.row_of[slot], job.plan.time(slot, step));
      auto* const to = reinterpret_cast<OperandOf<Panel>*>(job.rounded.x) + job.rounded_row(slot, step) * inputs;
      if constexpr (RoundsOperands<Panel>) {
        if (job.x_bf16 != nullptr) {
          std::fill_n(std::copy_n(job.x_bf16 + from, job.input, to), inputs - job.input, std::uint16_t{0});
          continue;
        }
      }
      RoundRow(job.x + from, job.input, inputs, to);
    }
  }
  if (part.barrier != nullptr) part.barrier->wait();
}

/// `rows` steps of one slot, or one step of `rows` slots.
template <class Panel, int gate_count, int width>
struct InputTile {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr int vectors = gate_count * width;
  const DenseForward<Real>& job;
  Index first_gate, head, first_unit;
  const Panel* panel;

  template <int rows>
  HWY_INLINE void run(Index slot, Index step, bool along_steps) const {
    const Index head_size = job.hidden / job.heads;
    const OperandOf<Panel>* x[rows];
    Real* wx[rows];
    V acc[rows][vectors];
    for (int m = 0; m < rows; ++m) {
      const Index s = along_steps ? slot : slot + m, t = along_steps ? step + m : step;
      x[m] = InputRow<Panel>(job, s, t);
      wx[m] = job.wx + job.wx_row(s, t) * job.wx_stride + first_gate * job.hidden + head * head_size + first_unit;
    }
    LoadBias<Real, gate_count, width>(job.bias_ih + first_gate * job.hidden, job.hidden, head_size, head, first_unit,
                                      acc[0]);
    for (int m = 1; m < rows; ++m) {
      for (int v = 0; v < vectors; ++v) acc[m][v] = acc[0][v];
    }
    AccumulatePanel<Real, rows, vectors>(x, job.input, panel, acc);
    for (int m = 0; m < rows; ++m) {
      for (int g = 0; g < gate_count; ++g) {
        for (int w = 0; w < width; ++w) {
          const Index count = std::min<Index>(L::lanes, head_size - first_unit - w * L::lanes);
          if (count > 0) L::store(acc[m][g * width + w], wx[m] + g * job.hidden + w * L::lanes, count);
        }
      }
    }
  }
};

/// Steps [begin, end) of a part, gates [first_gate, first_gate + gate_count).
template <class Panel, int gate_count, int width>
void InputProduct(const DenseForward<RealOf<Panel>>& job, Index first_gate, const Panel* panels, const DensePart& part,
                  Index begin, Index end) {
  using Real = RealOf<Panel>;
  constexpr int most = MaxTileRows<Panel, gate_count * width>();
  constexpr Index units = width * Lanes<Real>::lanes;
  const RowPlan& plan = job.plan;
  const Index blocks_per_head = (job.hidden / job.heads + units - 1) / units;
  const bool along_steps = job.along_steps();
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const InputTile<Panel, gate_count, width> tile{job, first_gate, block / blocks_per_head,
                                                   block % blocks_per_head * units,
                                                   panels + block * PanelInputs<Panel>(job.input) * gate_count * units};
    if (along_steps) {
      for (Index slot = part.slot_begin; slot < part.slot_end && plan.length[slot] > begin; ++slot) {
        ForEachTile<most>(begin, std::min(end, plan.length[slot]), [&](auto rows, Index step) HWY_ATTR {
          tile.template run<decltype(rows)::value>(slot, step, true);
        });
      }
      continue;
    }
    Index slot_end = part.slot_end;
    for (Index step = begin; step < end; ++step) {
      while (slot_end > part.slot_begin && plan.length[slot_end - 1] <= step) --slot_end;
      ForEachTile<most>(part.slot_begin, slot_end, [&](auto rows, Index slot) HWY_ATTR {
        tile.template run<decltype(rows)::value>(slot, step, false);
      });
    }
  }
}

/// Brings the units of a part of steps [begin, end), with their bias, from x, which holds their input product.
template <class Cell, int width, class Real>
void GivenProduct(const DenseForward<Real>& job, const DensePart& part, Index begin, Index end) {
  using L = Lanes<Real>;
  constexpr Index units = width * L::lanes;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  for (Index slot = part.slot_begin; slot < part.slot_end; ++slot) {
    for (Index step = begin; step < std::min(end, job.plan.length[slot]); ++step) {
      const Real* const from = job.x + job.x_map.at(job.plan.row_of[slot], job.plan.time(slot, step));
      Real* const to = job.wx + job.wx_row(slot, step) * job.wx_stride;
      for (Index block = part.block_begin; block < part.block_end; ++block) {
        const Index first = block % blocks_per_head * units, head = block / blocks_per_head * head_size;
        for (Index unit = first; unit < std::min(first + units, head_size); unit += L::lanes) {
          const Index count = std::min<Index>(L::lanes, head_size - unit);
          for (Index at = head + unit; at < Cell::gates * job.hidden; at += job.hidden) {
            L::store(L::load(from + at, count) + L::load(job.bias_ih + at, count), to + at, count);
          }
        }
      }
    }
  }
}

/// The panels of weight_ih, cut into the same blocks: all inputs of a block's units.
template <class Panel, class Cell>
std::size_t DenseInputPanels(Index input, Index hidden, Index heads) {
  const PanelShape shape = ShapeOfPanels<Panel>(FirstGroup<Cell>(), hidden, heads);
  return PanelReals<Panel>(shape.blocks * shape.units * PanelInputs<Panel>(input) * Cell::gates);
}

template <class Panel, class Cell>
void PackDenseInput(Index input, Index hidden, Index heads, StoredWeights<RealOf<Panel>> weight_ih,
                    RealOf<Panel>* packed) {
  constexpr int first = FirstGroup<Cell>();
  const PanelShape shape = ShapeOfPanels<Panel>(first, hidden, heads);
  const Index size = hidden / shape.heads;
  WithStored<Panel>(weight_ih, input, [&](auto weights) {
    const auto fill = [&](int first_gate, int count, Panel* panels) {
      return FillPanels(shape, count, input, size, panels, [&](Index head) {
        return PanelWeights{weights + (first_gate * hidden + head * size) * input, hidden * input, 1, input};
      });
    };
    Panel* second = fill(0, first, reinterpret_cast<Panel*>(packed));
    if constexpr (Cell::phases == 2) fill(first, Cell::gates - first, second);
  });
}
