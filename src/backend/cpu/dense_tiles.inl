// The forward engine of dense cells by AMX: tiles of up to 32 rows go through memory, in the first-level cache, on
// their way to the gates.

/// `count` rows of the input product that lie one after the other among the rounded inputs, for one block of units.
template <class Cell, int first_gate, int gate_count, int width>
struct InputTileRows {
  static constexpr int vectors = gate_count * width;
  const DenseForward<float>& job;
  Index head, first_unit;
  const Bf16Tile* panel;
  Simd start[vectors];

  HWY_INLINE Index unit(int w) const { return first_unit + w * Simd::lanes; }
  HWY_INLINE float* out(Index wx_row, int g, int w) const {
    const Index head_size = job.hidden / job.heads;
    return job.wx + (wx_row * Cell::gates + first_gate + g) * job.hidden + head * head_size + unit(w);
  }

  /// From one row to the next, wx moves on by `wx_step`.
  HWY_INLINE void run(Index row, Index count, Index wx_row, Index wx_step) const {
    const Index inputs = PanelInputs<Bf16Tile>(job.input);
    for (Index done = 0, rows; done < count; done += rows) {
      rows = std::min(2 * kTileRows, count - done);
      const TileOperands a{job.rounded.x + (row + done) * inputs, inputs, job.input};
      const Index to = wx_row + done * wx_step;
      if (rows == 2 * kTileRows && unit(width) <= job.hidden / job.heads) {
        float* sums[vectors];
        for (int v = 0; v < vectors; ++v) sums[v] = out(to, v / width, v % width);
        MultiplyTileRows<vectors>(a, panel, start, sums, wx_step * Cell::gates * job.hidden);
      } else {
        TileSums<vectors> sums;
        sums.multiply(rows, a, panel, start);
        for (Index m = 0; m < rows; ++m) store(sums.sum[m], to + m * wx_step);
      }
    }
  }

  HWY_INLINE void store(const Simd (&sum)[vectors], Index wx_row) const {
    for (int v = 0; v < vectors; ++v) {
      const Index count = std::min<Index>(Simd::lanes, job.hidden / job.heads - unit(v % width));
      if (count > 0) Lanes<float>::store(sum[v], out(wx_row, v / width, v % width), count);
    }
  }
};

template <std::same_as<Bf16Tile> Panel, class Cell, int first_gate, int gate_count, int width>
void InputProduct(const DenseForward<float>& job, const Panel* panels, const DensePart& part, Index begin, Index end) {
  constexpr Index units = width * Simd::lanes;
  const RowPlan& plan = job.plan;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const bool whole = part.slot_begin == 0 && part.slot_end == plan.rows && plan.length[plan.rows - 1] >= end;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    InputTileRows<Cell, first_gate, gate_count, width> tile{
        job,
        block / blocks_per_head,
        block % blocks_per_head * units,
        panels + block * PanelInputs<Panel>(job.input) * gate_count * units,
        {}};
    LoadBias<float, first_gate, gate_count, width>(job.bias_ih, job.hidden, head_size, tile.head, tile.first_unit,
                                                   tile.start);
    if (job.along_steps()) {
      for (Index slot = part.slot_begin; slot < part.slot_end && plan.length[slot] > begin; ++slot) {
        const Index steps = std::min(end, plan.length[slot]) - begin;
        tile.run(job.rounded_row(slot, begin), steps, job.wx_row(slot, begin), plan.rows);
      }
    } else if (whole) {
      tile.run(job.rounded_row(0, begin), (end - begin) * plan.rows, job.wx_row(0, begin), 1);
    } else {
      Index slot_end = part.slot_end;
      for (Index step = begin; step < end; ++step) {
        while (slot_end > part.slot_begin && plan.length[slot_end - 1] <= step) --slot_end;
        const Index row = job.wx_row(part.slot_begin, step);
        tile.run(row, slot_end - part.slot_begin, row, 1);
      }
    }
  }
}

template <std::same_as<Bf16Tile> Panel, class Cell, int first_gate, int gate_count, int width>
void ForwardGroup(const DenseForward<float>& job, const GateGroup<Panel>& group, const RowPlace<float>* places,
                  const DensePart& part, Index slot_end, Index step) {
  if (slot_end - part.slot_begin == 1) {
    return ForwardTiles<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step);
  }
  constexpr int vectors = gate_count * width;
  constexpr Index units = width * Simd::lanes;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const Index head_stride = HeadStride<Panel>(head_size), stride = job.heads * head_stride;
  const Index inputs = PanelInputs<Panel>(job.input);
  TileSums<vectors> of_input, of_state;
  WalkBlocks(part, step, 1, [&](Index block, Index) HWY_ATTR {
    const Index head = block / blocks_per_head, first_unit = block % blocks_per_head * units;
    Simd bias_ih[vectors], bias_hh[vectors];
    LoadBias<float, first_gate, gate_count, width>(job.bias_ih, job.hidden, head_size, head, first_unit, bias_ih);
    LoadBias<float, first_gate, gate_count, width>(job.bias_hh, job.hidden, head_size, head, first_unit, bias_hh);
    for (Index slot = part.slot_begin; slot < slot_end; slot += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, slot_end - slot);
      of_state.multiply(rows, {group.operand + slot * stride + head * head_stride, stride, head_size},
                        group.panels + block * head_stride * vectors * Simd::lanes, bias_hh);
      if (job.wx == nullptr) {
        of_input.multiply(rows, {InputRow<Panel>(job, slot, step), inputs, job.input},
                          group.input_panels + block * inputs * vectors * Simd::lanes, bias_ih);
      }
      TileGates<Panel, Cell, first_gate, gate_count, width>(
          job, {places + slot, head, first_unit}, static_cast<int>(rows), 1, of_input.sum[0], of_state.sum[0]);
    }
  });
}
