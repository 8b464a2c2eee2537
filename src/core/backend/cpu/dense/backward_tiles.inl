// The backward engine of dense cells by AMX.

template <int width>
void BackwardProduct(const DenseBackward<float>& job, const GradientGroup<Bf16Tile>& group, const DensePart& part,
                     Index slot_end, Index step) {
  if (slot_end - part.slot_begin == 1) return BackwardTiles<width>(job, group, part, slot_end, step);
  using Panel = Bf16Tile;
  constexpr Index units = width * Simd::lanes;
  const Index gate_count = group.end - group.first;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  const Index inputs = HeadStride<Panel>(head_size);
  Simd zeros[width];
  for (Simd& zero : zeros) zero = Simd(0);
  TileSums<width> sums;
  ForEachBlock(part, step, 1, [&](Index block, Index) HWY_ATTR {
    const Index head = block / blocks_per_head, first_unit = block % blocks_per_head * units;
    const Panel* panel = group.panels + block * inputs * gate_count * units;
    for (Index slot = part.slot_begin; slot < slot_end; slot += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, slot_end - slot);
      sums.multiply(
          rows, {StepGradients(job, group, slot, step, head), job.heads * group.gates * inputs, gate_count * inputs},
          panel, zeros);
      group.finish(job, {slot, rows, step, head, first_unit, width}, sums.sum[0]);
    }
  });
}
