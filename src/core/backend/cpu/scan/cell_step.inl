// How the engines of scan cells read the equations of a cell.

/// `count` channels from `channel` on, at one step of a row.
struct ScanPlace {
  Index channel, count;
  Index row = 0, t = 0;  // backward passes only
};

/// Values of the state that a row starts again with, or zeros for null.
template <class Real>
HWY_INLINE typename Lanes<Real>::V Restarted(const Real* state, Index channel, Index count) {
  return state == nullptr ? typename Lanes<Real>::V(0) : Lanes<Real>::load(state + channel, count);
}

/// The most sites of a tile of any panels.
constexpr int kMostScanTileRows = 32;

/// The step of a cell or a rule with these gates. There are others for cells whose equations are in the job.
template <class Cell, class Job, class V, int G>
requires(!Custom<Cell>) HWY_INLINE AffineStep<V, Cell::splits_gain> StepAt(const Job&, ScanPlace, const V (&wx)[G]) {
  return StepOf<Cell>(wx);
}

/// The step of gates that a header computes when it is asked for.
template <class Cell, class V, int G>
struct StepLater {
  const V (&wx)[G];
  HWY_INLINE AffineStep<V, Cell::splits_gain> step() const { return StepOf<Cell>(wx); }
};

/// Computes the gradients of the gates. Returns what has their step as step().
template <class Cell, class Job, class V, int G>
requires(!Custom<Cell>) HWY_INLINE StepLater<Cell, V, G> GradientsAt(const Job&, ScanPlace, const V (&wx)[G], V da,
                                                                     V db, V (&dwx)[G]) {
  Cell::affine_backward(wx, da, db, dwx);
  return {wx};
}
