// A step of dense cells by AMX: tiles of up to 32 rows go through memory, in the caches of a core, on their way to the
// gates.

/// Rows of operands of a step, as tiles want them, and the panels they are multiplied with.
template <class Panel>
class StepRows;

/// One step of a part: the sums of as many rows and blocks of units as stay in the first-level cache or near it, then
/// their gates, row after row. Gates at the same time as the next tile's products were slower than one after the
/// other: each pushes what the other reads out of the cache.
template <class Panel, class Cell, int first_gate, int gate_count, int width>
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
    const Index at_once = Rows::at_once(head_size_);
    for (Index slot = part_.slot_begin; slot < slot_end_; slot += at_once) {
      const Index rows = std::min(at_once, slot_end_ - slot);
      const Index together = kTiles * kTileRows / ((rows + kTileRows - 1) / kTileRows * kTileRows);
      Index head = -1;
      for (Index block = part_.block_begin, count; block < part_.block_end; block += count) {
        count = std::min({together, part_.block_end - block, blocks_per_head_ - block % blocks_per_head_});
        if (block / blocks_per_head_ != head) {
          head = block / blocks_per_head_;
          const Index stride = job_.heads * head_stride_;
          state_.take(group_.operand + slot * stride + head * head_stride_, stride, head_size_, rows);
        }
        run(slot, rows, block, count);
      }
    }
  }

 private:
  using Rows = StepRows<Panel>;
  static constexpr Index kMostRows = 64;
  static constexpr Index kTiles = 64 / vectors;  // tiles of 16 rows x a block of units whose sums are kept
  /// Rows do not lie a power of two apart, which would let all of them fall into the same few places of the cache.
  struct Sums {
    alignas(64) Simd vector[kTiles * kTileRows * vectors + kMostRows];
  };

  /// `count` blocks of one head.
  HWY_INLINE void run(Index slot, Index rows, Index block, Index count) {
    const Index head = block / blocks_per_head_;
    multiply(state_, Rows::template panels<Cell, first_gate>(job_, group_), head_size_, job_.bias_hh, rows, block,
             count, of_state_);
    if constexpr (RoundsOperands<Panel>) {
      if (job_.wx == nullptr) {  // a single step, whose input product is made on the way
        Rows input;
        input.take(InputRow<Panel>(job_, slot, step_), PanelInputs<Panel>(job_.input), job_.input, rows);
        multiply(input, group_.input_panels, job_.input, job_.bias_ih, rows, block, count, of_input_);
      }
    }
    const Index first_unit = block % blocks_per_head_ * units;
    for (Index m = 0; m < rows; ++m) {
      const Index at = m * row_stride(count);
      TileGates<Panel, Cell, first_gate, gate_count, width>(job_, {places_ + slot + m, head, first_unit}, 1,
                                                            static_cast<int>(count), of_input_.vector + at,
                                                            of_state_.vector + at);
    }
  }

  static Index row_stride(Index blocks) { return blocks * vectors + 1; }

  /// Every other step walks backwards, as WalkBlocks() does.
  template <class Panels>
  HWY_INLINE void multiply(const Rows& a, const Panels* panels, Index inputs, const float* bias, Index rows,
                           Index block, Index count, Sums& sums) const {
    const Index panel_size = Rows::template panel_size<vectors>(inputs), head = block / blocks_per_head_;
    for (Index i = 0; i < count; ++i) {
      const Index at = step_ % 2 != 0 ? count - 1 - i : i;
      Simd start[vectors];
      LoadBias<float, first_gate, gate_count, width>(bias, job_.hidden, head_size_, head,
                                                     (block + at) % blocks_per_head_ * units, start);
      const Panels* panel = panels + (block + at) * panel_size;
      for (Index row = 0; row < rows; row += 2 * kTileRows) {
        Simd* to = sums.vector + row * row_stride(count) + at * vectors;
        a.template multiply<vectors>(row, rows - row, panel, start, to, row_stride(count));
      }
    }
  }

  const DenseForward<float>& job_;
  const GateGroup<Panel>& group_;
  const RowPlace<float>* const places_;  // in slot order
  const DensePart& part_;
  const Index slot_end_, step_, head_size_, blocks_per_head_, head_stride_;
  Rows state_;                // of the rows and the head at hand
  Sums of_state_, of_input_;  // [rows][blocks][vectors]
};
