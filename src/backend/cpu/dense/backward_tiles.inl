// The backward engine of dense cells by AMX.

template <std::same_as<Bf16Tile> Panel, class Cell, int width, bool phase_two>
void BackwardProduct(const DenseBackward<float>& job, const Panel* panels, const DensePart& part, Index slot_end,
                     Index step) {
  if (slot_end - part.slot_begin == 1) {
    return BackwardTiles<Panel, Cell, width, phase_two>(job, panels, part, slot_end, step);
  }
  constexpr Index units = width * Simd::lanes;
  constexpr int split = FirstGroup<Cell>();
  constexpr int first_gate = phase_two ? split : 0, gate_count = phase_two ? Cell::gates - split : split;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const Index inputs = HeadStride<Panel>(head_size);
  Simd zeros[width];
  for (Simd& zero : zeros) zero = Simd(0);
  TileSums<width> sums;
  WalkBlocks(part, step, 1, [&](Index block, Index) HWY_ATTR {
    const Index head = block / blocks_per_head, first_unit = block % blocks_per_head * units;
    const Panel* panel = panels + block * inputs * gate_count * units;
    for (Index slot = part.slot_begin; slot < slot_end; slot += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, slot_end - slot);
      sums.multiply(rows,
                    {StepGradients<Panel, Cell>(job, slot, step, head, first_gate), job.heads * Cell::gates * inputs,
                     gate_count * inputs},
                    panel, zeros);
      FinishBackward<Panel, Cell, width, phase_two>(job, slot, rows, step, head, first_unit, sums.sum);
    }
  });
}
