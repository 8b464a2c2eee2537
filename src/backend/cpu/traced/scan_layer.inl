// Include before scan/layer.inl.

template <class Real, class Cell, int rows>
struct TileSteps;

/// The steps of a tile, computed side by side.
template <class Real, Traced Cell, int rows>
struct TileSteps<Real, Cell, rows> {
  using V = typename Lanes<Real>::V;
  using Gates = V[Cell::gates];

  HWY_INLINE TileSteps(const ScanLayer<Real>& job, const Gates* gates) {
    if (!job.walks()) return;
    const Program& program = CellOf(job).forward;
    TileSlots<V> slots(program);
    for (int first = 0; first < rows; first += slots.together) {
      const int count = std::min(slots.together, rows - first);
      for (const Program::Leaf& leaf : program.leaves) {
        for (int j = 0; j < count; ++j) slots.at(leaf.slot)[j] = gates[first + j][leaf.index];
      }
      RunProgram(program, count, slots);
      for (int j = 0; j < count; ++j) {
        steps[first + j] = {slots.at(program.results[0])[j], slots.at(program.results[1])[j]};
      }
    }
  }
  HWY_INLINE AffineStep<V, false> operator[](int m) const { return steps[m]; }

  AffineStep<V, false> steps[rows];
};
