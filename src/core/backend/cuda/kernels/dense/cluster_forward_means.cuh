// The cell at all slots of a thread at once, in forward passes over clusters of cells whose units read means over their
// head. `Means`: what computes means (ClusterMeans).

template <class Cell, class Means, class Product>
PENSTOCK_DEVICE void ApplyWithMeans(Slot (&slots)[kSlots], Means& means, const Real (&wx)[kSlots][kGates], int step,
                                    int lane, int head, const DenseForwardArguments& args, const Product& product,
                                    CellForward (&made)[kSlots]) {
  Values x[kGates], h[kGates], before[kStates], after[kStates], save[kSaved];
  Learnt learnt[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Real rh[kGates], prev[kStates];
    made[s] = slots[s].enter(
        wx[s], [&](int g) { return product(s, g); }, rh, prev);
    learnt[s] = slots[s].learnt;
#pragma unroll
    for (int g = 0; g < kGates; ++g) x[g].of[s] = wx[s][g], h[g].of[s] = rh[g];
#pragma unroll
    for (int k = 0; k < kStates; ++k) before[k].of[s] = prev[k];
  }
  DenseCell::forward<Cell>(means, x, h, before, learnt, after, save);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Real next[kStates];
#pragma unroll
    for (int k = 0; k < kStates; ++k) next[k] = after[k].of[s];
    slots[s].leave(next, step, lane, made[s]);
  }
}

/// Writes the means of a step to the tape, before the slots go on to the next one.
template <class Means>
PENSTOCK_DEVICE void KeepMeans(const Slot (&slots)[kSlots], const Means& means, int step, int lane, int head,
                               const DenseForwardArguments& args) {
  if constexpr (kTraining) {
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const Slot& first = slots[p * kPartSlots];
      if (!first.place.exists || first.place.block != 0 || step >= first.place.row.length) continue;
      means.kept[p].store(first.means(head, args), lane % 8);
    }
  }
}
