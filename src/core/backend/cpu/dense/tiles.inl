// The forward engine of dense cells by AMX: tiles of up to 32 rows go through memory, in the caches of a core, on their
// way to the gates.

/// `count` rows of the input product that lie one after the other among the rounded inputs, for one block of units.
template <class Panel, int gate_count, int width>
struct InputTileRows {
  static constexpr int vectors = gate_count * width;
  const DenseForward<float>& job;
  Index first_gate, head, first_unit;
  const Panel* panel;
  Simd start[vectors];

  HWY_INLINE Index unit(int w) const { return first_unit + w * Simd::lanes; }
  HWY_INLINE float* out(Index wx_row, int g, int w) const {
    const Index head_size = job.hidden / job.heads;
    return job.wx + wx_row * job.wx_stride + (first_gate + g) * job.hidden + head * head_size + unit(w);
  }

  /// From one row to the next, wx moves on by `wx_step`.
  HWY_INLINE void run(Index row, Index count, Index wx_row, Index wx_step) const {
    const Index inputs = OperandInputs<Panel>(job.input);
    for (Index done = 0, rows = 0; done < count; done += rows) {
      rows = std::min(2 * kTileRows, count - done);
      const TileOperands<Panel> a{reinterpret_cast<const OperandOf<Panel>*>(job.rounded.x) + (row + done) * inputs,
                                  inputs, job.input};
      const Index to = wx_row + done * wx_step;
      if (rows == 2 * kTileRows && unit(width) <= job.hidden / job.heads) {
        float* sums[vectors];
        for (int v = 0; v < vectors; ++v) sums[v] = out(to, v / width, v % width);
        MultiplyTileRows(rows, a, TilePanels<Panel, vectors>{panel}, start, sums, wx_step * job.wx_stride);
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

template <Tiled Panel, int gate_count, int width>
void InputProduct(const DenseForward<float>& job, Index first_gate, const Panel* panels, const DensePart& part,
                  Index begin, Index end) {
  constexpr Index units = width * Simd::lanes;
  const RowPlan& plan = job.plan;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const bool whole = part.slot_begin == 0 && part.slot_end == plan.rows && plan.length[plan.rows - 1] >= end;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    InputTileRows<Panel, gate_count, width> tile{job,
                                                 first_gate,
                                                 block / blocks_per_head,
                                                 block % blocks_per_head * units,
                                                 panels + block * PanelInputs<Panel>(job.input) * gate_count * units,
                                                 {}};
    LoadBias<float, gate_count, width>(job.bias_ih + first_gate * job.hidden, job.hidden, head_size, tile.head,
                                       tile.first_unit, tile.start);
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

/// One step of a part: the sums of as many rows and blocks of units as stay in the first-level cache or near it, then
/// their gates, row after row. Gates at the same time as the next tile's products were slower than one after the
/// other: each pushes what the other reads out of the cache.
template <class Panel, int gate_count, int width>
class ForwardTileStep {
 public:
  static constexpr int vectors = gate_count * width;
  static constexpr Index units = width * Simd::lanes;

  HWY_INLINE ForwardTileStep(const DenseForward<float>& job, const GateGroup<Panel>& group,
                             const RowPlace<float>* places, const DensePart& part, Index slot_end, Index step)
      : job_(job),
        group_(group),
        places_(places),
        part_(part),
        slot_end_(slot_end),
        step_(step),
        head_size_(job.hidden / job.heads),
        blocks_per_head_((head_size_ + units - 1) / units),
        head_stride_(HeadStride<Panel>(head_size_)) {}

  void run() {
    for (Index slot = part_.slot_begin; slot < slot_end_; slot += kRows) {
      const Index rows = std::min(kRows, slot_end_ - slot);
      const Index together = kTiles * kTileRows / ((rows + kTileRows - 1) / kTileRows * kTileRows);
      for (Index block = part_.block_begin, count = 0; block < part_.block_end; block += count) {
        count = std::min({together, part_.block_end - block, blocks_per_head_ - block % blocks_per_head_});
        run(slot, rows, block, count);
      }
    }
  }

 private:
  static constexpr Index kRows = 64;
  static constexpr Index kTiles = 64 / vectors;  // tiles of 16 rows x a block of units whose sums are kept
  /// Rows do not lie a power of two apart, which would let all of them fall into the same few places of the cache.
  struct Sums {
    alignas(64) Simd vector[kTiles * kTileRows * vectors + kRows];
  };

  /// `count` blocks of one head.
  HWY_INLINE void run(Index slot, Index rows, Index block, Index count) {
    const Index head = block / blocks_per_head_, inputs = OperandInputs<Panel>(job_.input);
    const Index stride = job_.heads * head_stride_;
    multiply({group_.operand + slot * stride + head * head_stride_, stride, head_size_}, group_.panels, job_.bias_hh,
             rows, block, count, of_state_);
    if (job_.wx == nullptr) {  // a single step, whose input product is made on the way
      multiply({InputRow<Panel>(job_, slot, step_), inputs, job_.input}, group_.input_panels, job_.bias_ih, rows, block,
               count, of_input_);
    }
    const Index first_unit = block % blocks_per_head_ * units;
    for (Index m = 0; m < rows; ++m) {
      const Index at = m * row_stride(count);
      group_.compute(job_, {places_ + slot + m, head, first_unit}, 1, static_cast<int>(count), of_input_.vector + at,
                     of_state_.vector + at);
    }
  }

  static Index row_stride(Index blocks) { return blocks * vectors + 1; }

  /// Every other step runs backwards, as ForEachBlock() does.
  HWY_INLINE void multiply(const TileOperands<Panel>& a, const Panel* panels, const float* bias, Index rows,
                           Index block, Index count, Sums& sums) const {
    const Index panel_size = PanelInputs<Panel>(a.inputs) * vectors * Simd::lanes, head = block / blocks_per_head_;
    for (Index i = 0; i < count; ++i) {
      const Index at = step_ % 2 != 0 ? count - 1 - i : i;
      Simd start[vectors];
      LoadBias<float, gate_count, width>(bias + group_.first_gate * job_.hidden, job_.hidden, head_size_, head,
                                         (block + at) % blocks_per_head_ * units, start);
      const Panel* panel = panels + (block + at) * panel_size;
      for (Index row = 0; row < rows; row += 2 * kTileRows) {
        const TileOperands<Panel> part{a.rows + row * a.stride, a.stride, a.inputs};
        Simd* to = sums.vector + row * row_stride(count) + at * vectors;
        MultiplyTileVectors<vectors>(rows - row, part, panel, start, to, row_stride(count));
      }
    }
  }

  const DenseForward<float>& job_;
  const GateGroup<Panel>& group_;
  const RowPlace<float>* const places_;  // in slot order
  const DensePart& part_;
  const Index slot_end_, step_, head_size_, blocks_per_head_, head_stride_;
  Sums of_state_, of_input_;  // [rows][blocks][vectors]
};

/// Rows of a step from which tiles multiply them faster than vectors do (docs/results/int8.md).
template <class Panel>
constexpr Index kFewestTileRows = Int8<Panel> ? 6 : 2;

template <int gate_count, int width, Tiled Panel>
void ForwardGroup(const DenseForward<float>& job, const GateGroup<Panel>& group, const RowPlace<float>* places,
                  const DensePart& part, Index slot_end, Index step) {
  if (slot_end - part.slot_begin < kFewestTileRows<Panel>) {
    return ForwardTiles<gate_count, width>(job, group, places, part, slot_end, step);
  }
  ForwardTileStep<Panel, gate_count, width>(job, group, places, part, slot_end, step).run();
}
