// The gradients of all slots of a thread at once, in backward passes over clusters of cells whose units read means over
// their head. `Means`: what computes means (ClusterMeans).

/// ring(slot): where what a step reads lies. wait() returns when through(slot), what flows through R, is known.
template <class Cell, class Means, class Ring, class Wait, class Through>
PENSTOCK_DEVICE void GradientsWithMeans(Slot (&slots)[kSlots], Means& means, const Ring& ring, int step, int lane,
                                        int head, const DenseBackwardArguments& args, const Wait& wait,
                                        const Through& through, Real (&dwx)[kSlots][kGates],
                                        Real (&drh)[kSlots][kGates]) {
  Values x[kGates], h[kGates], before[kStates], after[kStates], save[kSaved];
  Values dafter[kStates], dbefore[kStates], dx[kGates], dh[kGates], of_learnt[Learnt::places];
  Learnt learnt[kSlots];
  CellBackward cells[kSlots];
  TapedMeans taped;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Real wx[kGates], rh[kGates];
    cells[s] = slots[s].read_step(ring(s), step, lane, head, args, wx, rh);
    learnt[s] = slots[s].learnt;
    taped.means[s] = ring(s) + Inputs::first_piece(Inputs::means) * 16;
#pragma unroll
    for (int g = 0; g < kGates; ++g) x[g].of[s] = wx[g], h[g].of[s] = rh[g];
#pragma unroll
    for (int k = 0; k < kStates; ++k) before[k].of[s] = cells[s].prev[k];
  }
  DenseCell::forward<Cell>(taped, x, h, before, learnt, after, save);
  LookAhead(slots, args.rows, step, head);
  wait();
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Real dnext[kStates];
    slots[s].enter(cells[s], through(s), step, args, dnext);
#pragma unroll
    for (int k = 0; k < kStates; ++k) dafter[k].of[s] = dnext[k];
  }
  DenseCell::backward<Cell>(means, save, before, learnt, dafter, of_learnt, dx, dh, dbefore);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Real dprev[kStates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) dwx[s][g] = dx[g].of[s], drh[s][g] = dh[g].of[s];
#pragma unroll
    for (int k = 0; k < kStates; ++k) dprev[k] = dbefore[k].of[s];
    slots[s].leave(dprev, step, drh[s]);
#pragma unroll
    for (int k = 0; k < Learnt::count; ++k) {
      if (step < slots[s].place.row.length) slots[s].dlearnt.of[k] += of_learnt[k].of[s].value;
    }
  }
}
