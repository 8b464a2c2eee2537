// Parts of the engines of scan cells for cells whose equations are in the job. Include after scan/cell_step.inl and
// before scan/scan.inl and scan/step.inl.

/// Maps the type of a job to that of a defined cell's job.
template <class Real>
HWY_INLINE const TracedScanBackward<Real>& TracedJob(const ScanBackward<Real>& job) {
  return static_cast<const TracedScanBackward<Real>&>(job);
}
template <class Real>
HWY_INLINE const TracedLayer<Real>& TracedJob(const ScanLayer<Real>& job) {
  return static_cast<const TracedLayer<Real>&>(job);
}
template <class Real>
HWY_INLINE const TracedScanForward<Real>& TracedJob(const ScanForward<Real>& job) {
  return static_cast<const TracedScanForward<Real>&>(job);
}
template <class Real>
HWY_INLINE const TracedStep<Real>& TracedJob(const CellStep<Real>& job) {
  return static_cast<const TracedStep<Real>&>(job);
}

template <class L, class Real>
HWY_INLINE typename L::V LoadLearnt(const TracedCell<Real>& traced, Index k, ScanPlace at) {
  return L::load(traced.learnt + k * traced.hidden + at.channel, at.count);
}

template <Traced Cell, class Job, class V, int G>
HWY_INLINE AffineStep<V, false> StepAt(const Job& job, ScanPlace at, const V (&wx)[G]) {
  using L = Lanes<RealOfVector<V>>;
  const auto& traced = TracedJob(job).traced;
  const Program& program = traced.cell->forward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) {
    *slots.at(leaf.slot) = leaf.operation == Operation::learnt ? LoadLearnt<L>(traced, leaf.index, at) : wx[leaf.index];
  }
  RunProgram(program, 1, slots);
  return {*slots.at(program.results[0]), *slots.at(program.results[1])};
}

/// A step that is known already.
template <class V>
struct StepNow {
  AffineStep<V, false> value;
  HWY_INLINE AffineStep<V, false> step() const { return value; }
};

/// Stores the gradients of learnt vectors, too.
template <Traced Cell, class Real, class V, int G>
HWY_INLINE StepNow<V> GradientsAt(const ScanBackward<Real>& job, ScanPlace at, const V (&wx)[G], V da, V db,
                                  V (&dwx)[G]) {
  using L = Lanes<Real>;
  const TracedScanBackward<Real>& own = TracedJob(job);
  const Program& program = own.traced.cell->backward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) {
    V& to = *slots.at(leaf.slot);
    if (leaf.operation == Operation::input) to = wx[leaf.index];
    if (leaf.operation == Operation::gradient) to = leaf.index == 0 ? da : db;
    if (leaf.operation == Operation::learnt) to = LoadLearnt<L>(own.traced, leaf.index, at);
  }
  RunProgram(program, 1, slots);
  const auto result = [&](int i) HWY_ATTR { return *slots.at(program.results[static_cast<std::size_t>(i)]); };
  for (int g = 0; g < G; ++g) dwx[g] = result(g);
  const auto learnt = static_cast<int>(own.traced.cell->cell.learnt.size());
  for (int k = 0; k < learnt; ++k) {
    const GateSink<Real>& sink = own.dlearnt;
    Real* const to = sink.rows.at(at.row, at.t) + k * own.learnt_stride + at.channel / L::lanes * sink.vector_stride;
    L::store(result(G + k), to, L::lanes);
  }
  return {{result(G + learnt), result(G + learnt + 1)}};
}
