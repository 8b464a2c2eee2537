// How the engines of scan cells read the equations of a cell.

/// The step of a cell or a rule with these gates. There are others for cells whose equations are in the job.
template <class Cell, class Job, class V, int G>
requires(!Traced<Cell>) HWY_INLINE AffineStep<V, Cell::splits_gain> StepAt(const Job&, const V (&wx)[G]) {
  return StepOf<Cell>(wx);
}
template <class Cell, class Job, class V, int G>
requires(!Traced<Cell>) HWY_INLINE void GradientsAt(const Job&, const V (&wx)[G], V da, V db, V (&dwx)[G]) {
  Cell::affine_backward(wx, da, db, dwx);
}
