// Parts of the engines of scan cells for cells whose equations are in the job. Include after scan/cell_step.inl and
// before scan/scan.inl and scan/step.inl.

/// Maps the type of a job to that of a custom cell's job.
template <class Real>
HWY_INLINE const CustomScanBackward<Real>& CustomJob(const ScanBackward<Real>& job) {
  return static_cast<const CustomScanBackward<Real>&>(job);
}
template <class Real>
HWY_INLINE const CustomLayer<Real>& CustomJob(const ScanLayer<Real>& job) {
  return static_cast<const CustomLayer<Real>&>(job);
}
template <class Real>
HWY_INLINE const CustomScanForward<Real>& CustomJob(const ScanForward<Real>& job) {
  return static_cast<const CustomScanForward<Real>&>(job);
}
template <class Real>
HWY_INLINE const CustomStep<Real>& CustomJob(const CellStep<Real>& job) {
  return static_cast<const CustomStep<Real>&>(job);
}

template <class L, class Real>
HWY_INLINE typename L::V LoadLearnt(const CellProgram<Real>& custom, Index k, ScanPlace at) {
  return L::load(custom.learnt + k * custom.hidden + at.channel, at.count);
}

template <Custom Cell, class Job, class V, int G>
HWY_INLINE AffineStep<V, false> StepAt(const Job& job, ScanPlace at, const V (&wx)[G]) {
  using L = Lanes<RealOfVector<V>>;
  const auto& custom = CustomJob(job).custom;
  const Program& program = custom.cell->forward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) {
    *slots.at(leaf.slot) = leaf.operation == Operation::learnt ? LoadLearnt<L>(custom, leaf.index, at) : wx[leaf.index];
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
template <Custom Cell, class Real, class V, int G>
HWY_INLINE StepNow<V> GradientsAt(const ScanBackward<Real>& job, ScanPlace at, const V (&wx)[G], V da, V db,
                                  V (&dwx)[G]) {
  using L = Lanes<Real>;
  const CustomScanBackward<Real>& own = CustomJob(job);
  const Program& program = own.custom.cell->backward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) {
    V& to = *slots.at(leaf.slot);
    if (leaf.operation == Operation::input) to = wx[leaf.index];
    if (leaf.operation == Operation::gradient) to = leaf.index == 0 ? da : db;
    if (leaf.operation == Operation::learnt) to = LoadLearnt<L>(own.custom, leaf.index, at);
  }
  RunProgram(program, 1, slots);
  const auto result = [&](int i) HWY_ATTR { return *slots.at(program.results[static_cast<std::size_t>(i)]); };
  for (int g = 0; g < G; ++g) dwx[g] = result(g);
  const auto learnt = static_cast<int>(own.custom.cell->cell.learnt.size());
  for (int k = 0; k < learnt; ++k) {
    const GateSink<Real>& sink = own.dlearnt;
    Real* const to = sink.rows.at(at.row, at.t) + k * own.learnt_stride + at.channel / L::lanes * sink.vector_stride;
    L::store(result(G + k), to, L::lanes);
  }
  return {{result(G + learnt), result(G + learnt + 1)}};
}
