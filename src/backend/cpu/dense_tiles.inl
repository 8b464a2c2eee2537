// The forward engine of dense cells by AMX: tiles of 16 rows, of the input product 32, go through memory, in the
// first-level cache, on their way to the gates.

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

/// The tiles of a part at one step, 16 rows x one block of units each, in the order in which they are walked. While the
/// vector units are at the gates of one tile, AMX multiplies the next.
template <class Cell, int first_gate, int gate_count, int width>
class ForwardTileWalk {
 public:
  using Panel = Bf16Tile;
  static constexpr int vectors = gate_count * width;
  static constexpr Index units = width * Simd::lanes;

  HWY_INLINE ForwardTileWalk(const DenseForward<float>& job, const GateGroup<Panel>& group,
                             const RowPlace<float>* places, const DensePart& part, Index slot_end, Index step)
      : job_(job),
        group_(group),
        places_(places),
        part_(part),
        slot_end_(slot_end),
        step_(step),
        head_size_(job.hidden / job.heads),
        blocks_per_head_((head_size_ + units - 1) / units),
        head_stride_(HeadStride<Panel>(head_size_)),
        row_tiles_((slot_end - part.slot_begin + kTileRows - 1) / kTileRows) {}

  void run() {
    const Index tiles = (part_.block_end - part_.block_begin) * row_tiles_;
    if (tiles == 0) return;
    start(place_of(0));
    product_.finish(of_state_[0]);
    for (Index i = 0; i < tiles; ++i) {
      if (job_.wx == nullptr) multiply_input(place_of(i));
      if (i + 1 < tiles) start(place_of(i + 1));
      gates(place_of(i), of_state_[i % 2]);
      if (i + 1 < tiles) product_.finish(of_state_[(i + 1) % 2]);
    }
  }

 private:
  struct Place {
    Index slot, rows, block, head, first_unit;
  };
  /// Every other step walks backwards, as WalkBlocks() does.
  Place place_of(Index i) const {
    const Index done = i / row_tiles_, slot = part_.slot_begin + i % row_tiles_ * kTileRows;
    const Index block = step_ % 2 != 0 ? part_.block_end - 1 - done : part_.block_begin + done;
    return {slot, std::min(kTileRows, slot_end_ - slot), block, block / blocks_per_head_,
            block % blocks_per_head_ * units};
  }

  void start(const Place& at) {
    Simd bias[vectors];
    LoadBias<float, first_gate, gate_count, width>(job_.bias_hh, job_.hidden, head_size_, at.head, at.first_unit, bias);
    const Index stride = job_.heads * head_stride_;
    product_.begin({group_.operand + at.slot * stride + at.head * head_stride_, stride, head_size_},
                   group_.panels + at.block * head_stride_ * vectors * Simd::lanes, bias);
  }

  /// A few rows at a time, with a piece of the next tile's product before each.
  void gates(const Place& at, const Simd (*of_state)[vectors]) {
    constexpr Index together = 2;
    const Index pieces = (product_.pieces_left() * together + at.rows - 1) / at.rows;
    for (Index m = 0; m < at.rows; m += together) {
      for (Index i = 0; i < pieces; ++i) product_.advance();
      const int rows = static_cast<int>(std::min(together, at.rows - m));
      TileGates<Panel, Cell, first_gate, gate_count, width>(job_, {places_ + at.slot + m, at.head, at.first_unit}, rows,
                                                            1, of_input_[m], of_state[m]);
    }
  }

  /// Of a single step, made on the way.
  void multiply_input(const Place& at) {
    Simd bias[vectors];
    LoadBias<float, first_gate, gate_count, width>(job_.bias_ih, job_.hidden, head_size_, at.head, at.first_unit, bias);
    const Index inputs = PanelInputs<Panel>(job_.input);
    TileProduct<vectors> product;
    product.begin({InputRow<Panel>(job_, at.slot, step_), inputs, job_.input},
                  group_.input_panels + at.block * inputs * vectors * Simd::lanes, bias);
    product.finish(of_input_);
  }

  const DenseForward<float>& job_;
  const GateGroup<Panel>& group_;
  const RowPlace<float>* const places_;  // in slot order
  const DensePart& part_;
  const Index slot_end_, step_, head_size_, blocks_per_head_, head_stride_, row_tiles_;
  TileProduct<vectors> product_;
  alignas(64) Simd of_state_[2][kTileRows][vectors];
  alignas(64) Simd of_input_[kTileRows][vectors];
};

template <std::same_as<Bf16Tile> Panel, class Cell, int first_gate, int gate_count, int width>
void ForwardGroup(const DenseForward<float>& job, const GateGroup<Panel>& group, const RowPlace<float>* places,
                  const DensePart& part, Index slot_end, Index step) {
  if (slot_end - part.slot_begin == 1) {
    return ForwardTiles<Panel, Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step);
  }
  ForwardTileWalk<Cell, first_gate, gate_count, width>(job, group, places, part, slot_end, step).run();
}
