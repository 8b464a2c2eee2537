// The forward engine of dense cells in bfloat16 by AMX.

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
    return job.wx + wx_row * job.wx_stride + (first_gate + g) * job.hidden + head * head_size + unit(w);
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
        MultiplyTileRows<vectors>(a, panel, start, sums, wx_step * job.wx_stride);
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

template <>
class StepRows<Bf16Tile> {
 public:
  static constexpr Index at_once(Index) { return 64; }

  /// The panels of a group's recurrent product.
  template <class Cell, int first_gate>
  static const Bf16Tile* panels(const DenseForward<float>&, const GateGroup<Bf16Tile>& group) {
    return group.panels;
  }
  template <int vectors>
  static Index panel_size(Index inputs) {
    return PanelInputs<Bf16Tile>(inputs) * vectors * Simd::lanes;
  }

  HWY_INLINE void take(const std::uint16_t* first, Index stride, Index inputs, Index) {
    rows_ = {first, stride, inputs};
  }

  /// `rows` of them from `first` on: to [rows][vectors], rows `stride` vectors apart.
  template <int vectors>
  HWY_INLINE void multiply(Index first, Index rows, const Bf16Tile* panel, const Simd* start, Simd* to,
                           Index stride) const {
    const TileOperands part{rows_.rows + first * rows_.stride, rows_.stride, rows_.inputs};
    MultiplyWholeTiles<vectors>(rows, part, panel, start, to, stride);
  }

 private:
  TileOperands rows_{};
};

template <std::same_as<Bf16Tile> Panel, class Cell, int first_gate, int gate_count, int width>
void ForwardGroup(const DenseForward<float>& job, const GateGroup<Panel>& group, const RowPlace<float>* places,
                  const DensePart& part, Index slot_end, Index step) {
  if (slot_end - part.slot_begin == 1) {
    return ForwardTiles<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step);
  }
  ForwardTileStep<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step).run();
}
