// Include after dense/step_panels.inl and before scan/step.inl and scan/layer.inl.

template <class Real, class Cell>
struct TileSteps;

/// The steps of a tile, computed side by side.
template <class Real, Custom Cell>
struct TileSteps<Real, Cell> {
  using V = typename Lanes<Real>::V;
  using Gates = V[Cell::gates];

  HWY_INLINE TileSteps(const ScanLayer<Real>& job, ScanPlace at, const Gates* gates, int rows) {
    if (!job.has_outputs()) return;
    const CellProgram<Real>& custom = CustomJob(job).custom;
    const Program& program = custom.cell->forward;
    TileSlots<V> slots(program);
    for (int first = 0; first < rows; first += slots.together) {
      const int count = std::min(slots.together, rows - first);
      for (const Program::Leaf& leaf : program.leaves) {
        const bool learnt = leaf.operation == Operation::learnt;
        const V shared = learnt ? LoadLearnt<Lanes<Real>>(custom, leaf.index, at) : V(0);
        for (int j = 0; j < count; ++j) slots.at(leaf.slot)[j] = learnt ? shared : gates[first + j][leaf.index];
      }
      RunProgram(program, count, slots);
      for (int j = 0; j < count; ++j) {
        gain[first + j] = slots.at(program.results[0])[j];
        offset[first + j] = slots.at(program.results[1])[j];
      }
    }
  }
  HWY_INLINE AffineStep<V, false> operator[](int m) const { return {gain[m], offset[m]}; }

  // Not an array of AffineStep, whose implicit constructor would lack the target attribute of Highway's region.
  V gain[kMostScanTileRows], offset[kMostScanTileRows];
};

/// A block of channels at one step, with the equations of all its vectors computed side by side.
template <class Panel, Custom Cell, int width>
HWY_NOINLINE void ScanStepBlock(const CellStep<RealOf<Panel>>& job, const StepOperand<Panel>* x, const Panel* panel,
                                Index first) {
  using L = LanesOf<Panel>;
  using V = typename L::V;
  const CellProgram<RealOf<Panel>>& custom = CustomJob(job).custom;
  const Program& program = custom.cell->forward;
  V sums[1][Cell::gates * width];
  StepSums<Panel>(x, job.input, panel, job.far, sums);
  TileSlots<V> slots(program);
  for (int begin = 0; begin < width; begin += slots.together) {
    const int count = std::min(slots.together, width - begin);
    for (const Program::Leaf& leaf : program.leaves) {
      for (int j = 0; j < count; ++j) {
        const Index channel = (first + begin + j) * L::lanes, n = std::min<Index>(L::lanes, job.hidden - channel);
        V& to = slots.at(leaf.slot)[j];
        if (leaf.operation != Operation::learnt) to = sums[0][leaf.index * width + begin + j];
        if (leaf.operation == Operation::learnt && n > 0) to = LoadLearnt<L>(custom, leaf.index, {channel, n});
      }
    }
    RunProgram(program, count, slots);
    for (int j = 0; j < count; ++j) {
      const Index channel = (first + begin + j) * L::lanes, n = std::min<Index>(L::lanes, job.hidden - channel);
      if (n <= 0) break;
      const V h =
          MulAdd(slots.at(program.results[0])[j], L::load(job.state[0] + channel, n), slots.at(program.results[1])[j]);
      L::store(h, job.y + channel, n);
      L::store(h, job.state[0] + channel, n);
    }
  }
}
