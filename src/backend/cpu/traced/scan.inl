// What the engines of scan cells do otherwise for cells whose equations are in the job. Include before scan/scan.inl
// and scan/step.inl.

/// Which job of a defined cell a job is.
template <class Real>
HWY_INLINE const formula::DerivedCell& CellOf(const ScanLayer<Real>& job) {
  return *static_cast<const TracedLayer<Real>&>(job).traced.cell;
}
template <class Real>
HWY_INLINE const formula::DerivedCell& CellOf(const ScanForward<Real>& job) {
  return *static_cast<const TracedScanForward<Real>&>(job).traced.cell;
}
template <class Real>
HWY_INLINE const formula::DerivedCell& CellOf(const ScanBackward<Real>& job) {
  return *static_cast<const TracedScanBackward<Real>&>(job).traced.cell;
}
template <class Real>
HWY_INLINE const formula::DerivedCell& CellOf(const CellStep<Real>& job) {
  return *static_cast<const TracedStep<Real>&>(job).traced.cell;
}

template <Traced Cell, class Job, class V, int G>
HWY_INLINE AffineStep<V, false> StepAt(const Job& job, const V (&wx)[G]) {
  const Program& program = CellOf(job).forward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) *slots.at(leaf.slot) = wx[leaf.index];
  RunProgram(program, 1, slots);
  return {*slots.at(program.results[0]), *slots.at(program.results[1])};
}

/// A step that is known already.
template <class V>
struct StepNow {
  AffineStep<V, false> value;
  HWY_INLINE AffineStep<V, false> step() const { return value; }
};

template <Traced Cell, class Job, class V, int G>
HWY_INLINE StepNow<V> GradientsAt(const Job& job, const V (&wx)[G], V da, V db, V (&dwx)[G]) {
  const Program& program = CellOf(job).backward;
  TileSlots<V> slots(program);
  for (const Program::Leaf& leaf : program.leaves) {
    *slots.at(leaf.slot) = leaf.operation == Operation::input ? wx[leaf.index] : leaf.index == 0 ? da : db;
  }
  RunProgram(program, 1, slots);
  const auto result = [&](int i) HWY_ATTR { return *slots.at(program.results[static_cast<std::size_t>(i)]); };
  for (int g = 0; g < G; ++g) dwx[g] = result(g);
  return {{result(G), result(G + 1)}};
}
