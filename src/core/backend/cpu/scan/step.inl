// One step of one row of a scan cell: the input product of a block of channels stays in registers and goes straight
// through the gates into the recurrence.

/// A block of `width` vectors of channels from vector `first` on.
template <class Panel, class Cell, int width>
HWY_NOINLINE void ScanStepBlock(const CellStep<RealOf<Panel>>& job, const StepOperand<Panel>* x, const Panel* panel,
                                Index first) {
  using L = LanesOf<Panel>;
  using V = typename L::V;
  constexpr int G = Cell::gates;
  V sums[1][G * width];
  StepSums<Panel>(x, job.input, panel, job.far, sums);
  for (int w = 0; w < width; ++w) {
    const Index channel = (first + w) * L::lanes, count = std::min<Index>(L::lanes, job.hidden - channel);
    V gates[G];
    for (int g = 0; g < G; ++g) gates[g] = sums[0][g * width + w];
    const V h = StepAt<Cell>(job, {channel, count}, gates).advance(L::load(job.state[0] + channel, count));
    L::store(h, job.y + channel, count);
    L::store(h, job.state[0] + channel, count);
  }
}

template <class Panel, class Cell>
HWY_INLINE void ScanStep(const CellStep<RealOf<Panel>>& job) {
  const StepBlocks blocks = BlocksOfStep<Panel>(Cell::gates, job.hidden);
  const Index size = StepPanelSize<Panel>(job.input, Cell::gates);
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  const StepOperand<Panel>* const x = StepInput<Panel>(job);
  WithStepWidth<Panel, Cell::gates, false>(blocks.width, [&](auto width) HWY_ATTR {
    ForEachStepBlock<decltype(width)::value>(1, blocks, job.backwards, [&](auto vectors, Index, Index first) HWY_ATTR {
      ScanStepBlock<Panel, Cell, decltype(vectors)::value>(job, x, panels + first * size, first);
    });
  });
}

template <class Panel, class Cell>
void RunScanStep(const CellStep<RealOf<Panel>>& job) {
  WithStepPanel<Panel>(job.hidden, [&](auto tag) HWY_ATTR { ScanStep<typename decltype(tag)::type, Cell>(job); });
}

template <class Panel, class Cell>
std::size_t ScanStepPanels(Index input, Index hidden, Index) {
  return WithStepPanel<Panel>(hidden, [&](auto tag) HWY_ATTR {
    using P = typename decltype(tag)::type;
    return PanelReals<P>(BlocksOfStep<P>(Cell::gates, hidden).vectors * StepPanelSize<P>(input, Cell::gates));
  });
}

template <class Panel, class Cell>
void PackScanStep(Index input, Index hidden, Index, const StepWeights<RealOf<Panel>>& weights, RealOf<Panel>* packed) {
  WithStepPanel<Panel>(hidden, [&](auto tag) HWY_ATTR {
    PackStepGates(input, hidden, 1, Cell::gates, 0, Cell::gates, weights,
                  reinterpret_cast<typename decltype(tag)::type*>(packed));
  });
}
