// Backward engine of dense cells: at each step the gates' gradients, then through the transposed recurrent matrix the
// gradient of the state before. The weights' gradients are large products over all steps, done by the caller.

template <class Real, class Cell>
struct BackwardPointwise {
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  const DenseBackward<Real>& job;

  HWY_INLINE void load(const Site& at, V (&save)[N], V (&prev)[S]) const {
    for (int i = 0; i < N; ++i) save[i] = L::load(job.saved + (at.cell * N + i) * job.hidden + at.unit, at.count);
    for (int k = 0; k < S; ++k) prev[k] = L::load(job.prev + (at.cell * S + k) * job.hidden + at.unit, at.count);
  }

  HWY_INLINE Real* dstate(const Site& at, int k) const {
    return job.dstate + (k * job.plan.rows + at.slot) * job.hidden + at.unit;
  }

  HWY_INLINE void load_dnext(const Site& at, V (&dnext)[S]) const {
    const Index row = job.plan.row_of[at.slot];
    const Real* dy = job.dy + job.dy_map.at(row, job.plan.time(at.slot, at.step)) + at.unit;
    for (int k = 0; k < S; ++k) dnext[k] = L::load(dstate(at, k), at.count);
    dnext[0] = dnext[0] + L::load(dy, at.count);
  }

  HWY_INLINE void store_gate(const Site& at, int g, V dwx, V drh) const {
    const Index offset = (at.cell * G + g) * job.hidden + at.unit;
    L::store(dwx, job.dwx + offset, at.count);
    if (job.drh != job.dwx) L::store(drh, job.drh + offset, at.count);
  }

  /// The gradient of the states before the step, as far as it does not pass through the recurrent product.
  HWY_INLINE void store_dprev(const Site& at, const V (&dprev)[S]) const {
    const bool clear = job.plan.resets(at.slot, at.step);
    for (int k = 0; k < S; ++k) L::store(clear ? V(0) : dprev[k], dstate(at, k), at.count);
  }

  HWY_INLINE void gates(const Site& at) const {
    V save[N], prev[S], dnext[S], dprev[S], dwx[G], drh[G];
    load(at, save, prev);
    load_dnext(at, dnext);
    int first = 0;
    if constexpr (Cell::phases == 1) {
      Cell::backward(save, prev, dnext, dwx, drh, dprev);
    } else {
      Cell::backward_second(save, prev, dnext, dwx, drh, dprev);
      first = 1;  // gate 0 waits for the gradient of the operand
    }
    for (int g = first; g < G; ++g) store_gate(at, g, dwx[g], drh[g]);
    store_dprev(at, dprev);
  }

  HWY_INLINE void first_phase(const Site& at, V doperand) const {
    V save[N], prev[S], dprev[S], dwx[G], drh[G];
    load(at, save, prev);
    for (int k = 0; k < S; ++k) dprev[k] = L::load(dstate(at, k), at.count);
    Cell::backward_first(save, prev, doperand, dwx, drh, dprev);
    store_gate(at, 0, dwx[0], drh[0]);
    store_dprev(at, dprev);
    L::store(Cell::operand(save, prev), job.operand + at.cell * job.hidden + at.unit, at.count);
  }
};

/// acc [rows][width] = start + sum over gates [first, end) and units i of drh[gate, i] * R[gate, i][unit].
template <class Real, class Cell, int width, int rows>
HWY_INLINE void TransposedProduct(const DenseBackward<Real>& job, Index slot, Index step, Index head, int first_gate,
                                  int end_gate, const Real* panel, typename Lanes<Real>::V (&acc)[rows][width]) {
  const Index head_size = job.hidden / job.heads;
  for (int g = first_gate; g < end_gate; ++g) {
    const Real* a[rows];
    for (int m = 0; m < rows; ++m) {
      const Index cell = job.plan.cells.at(job.plan.row_of[slot + m], job.plan.time(slot + m, step));
      a[m] = job.drh + (cell * Cell::gates + g) * job.hidden + head * head_size;
    }
    panel = AccumulatePanel<Real, rows, width>(a, head_size, panel, acc);
  }
}

/// The product for one tile. `phase_two`: gates [first_gates, G) give the gradient of the operand; otherwise the
/// gates that read R h add to the gradient of h.
template <class Real, class Cell, int width, int rows, bool phase_two>
HWY_INLINE void BackwardTile(const DenseBackward<Real>& job, Index slot, Index step, Index head, Index first_unit,
                             const Real* panel) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const Index head_size = job.hidden / job.heads;
  const BackwardPointwise<Real, Cell> pointwise{job};
  constexpr int split = FirstGroup<Cell>();
  V acc[rows][width];
  for (int m = 0; m < rows; ++m) {
    for (int w = 0; w < width; ++w) acc[m][w] = V(0);
  }
  TransposedProduct<Real, Cell, width, rows>(job, slot, step, head, phase_two ? split : 0,
                                             phase_two ? Cell::gates : split, panel, acc);
  for (int m = 0; m < rows; ++m) {
    const Index row = job.plan.row_of[slot + m];
    const Index cell = job.plan.cells.at(row, job.plan.time(slot + m, step));
    const bool clear = job.plan.resets(slot + m, step);
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      if (count <= 0) break;
      const Site at{slot + m, step, cell, head * head_size + unit, count};
      if constexpr (phase_two) {
        pointwise.first_phase(at, acc[m][w]);
      } else if (!clear) {
        Real* dh = pointwise.dstate(at, 0);
        L::store(L::load(dh, count) + acc[m][w], dh, count);
      }
    }
  }
}

template <class Real, class Cell, int width, bool phase_two>
void BackwardProduct(const DenseBackward<Real>& job, const Real* panels, const DensePart& part, Index slot_end,
                     Index step) {
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<Real>::lanes;
  const Index blocks_per_head = (head_size + units - 1) / units;
  constexpr int gate_count = phase_two ? Cell::gates - FirstGroup<Cell>() : FirstGroup<Cell>();
  WalkBlocks(part, step, 1, [&](Index block, Index) HWY_ATTR {
    const Index head = block / blocks_per_head;
    const Index first_unit = block % blocks_per_head * units;
    const Real* panel = panels + block * head_size * gate_count * units;
    ForEachTile<MaxTileRows<Real, width>()>(part.slot_begin, slot_end, [&](auto rows, Index slot) HWY_ATTR {
      BackwardTile<Real, Cell, width, decltype(rows)::value, phase_two>(job, slot, step, head, first_unit, panel);
    });
  });
}

/// The gates' gradients of a part at one step.
template <class Real, class Cell>
void BackwardGates(const DenseBackward<Real>& job, const DensePart& part, Index slot_end, Index step, Index units) {
  constexpr Index lanes = Lanes<Real>::lanes;
  const Index head_size = job.hidden / job.heads;
  const Index blocks_per_head = (head_size + units - 1) / units;
  const BackwardPointwise<Real, Cell> pointwise{job};
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index cell = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    for (Index block = part.block_begin; block < part.block_end; ++block) {
      const Index head = block / blocks_per_head;
      const Index begin = block % blocks_per_head * units;
      for (Index unit = begin; unit < std::min(begin + units, head_size); unit += lanes) {
        pointwise.gates({slot, step, cell, head * head_size + unit, std::min(lanes, head_size - unit)});
      }
    }
  }
}

template <class Real, class Cell, int width>
void BackwardSteps(const DenseBackward<Real>& job, const DensePart& part) {
  constexpr int split = FirstGroup<Cell>();
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<Real>::lanes;
  const Index blocks = (head_size + units - 1) / units * job.heads;
  const Real* second_panels = job.packed + blocks * head_size * split * units;
  const auto wait = [&] {
    if (part.barrier != nullptr) part.barrier->wait();
  };
  Index slot_end = part.slot_begin;
  for (Index step = job.plan.length[part.slot_begin] - 1; step >= 0; --step) {
    while (slot_end < part.slot_end && job.plan.length[slot_end] > step) ++slot_end;
    BackwardGates<Real, Cell>(job, part, slot_end, step, units);
    wait();
    if constexpr (Cell::phases == 2) {
      BackwardProduct<Real, Cell, width, true>(job, second_panels, part, slot_end, step);
      wait();
    }
    BackwardProduct<Real, Cell, width, false>(job, job.packed, part, slot_end, step);
  }
}

template <class Real, class Cell>
void RunDenseBackward(const DenseBackward<Real>& job, const DensePart& part) {
  if (part.slot_begin >= part.slot_end) return;
  const int width = BlockVectors<Real>(1, job.hidden / job.heads);
  if (width == 1) return BackwardSteps<Real, Cell, 1>(job, part);
  if (width == 2) return BackwardSteps<Real, Cell, 2>(job, part);
  return BackwardSteps<Real, Cell, 4>(job, part);
}

template <class Real, class Cell>
PanelShape BackwardPanels(Index hidden, Index heads) {
  const Index head_size = hidden / heads;
  return ShapeOfPanels<Real>(1, Cell::gates * head_size, head_size, heads);
}

template <class Real, class Cell>
void PackBackward(Index hidden, Index heads, const Real* weight_hh, Real* packed) {
  constexpr int split = FirstGroup<Cell>();
  const Index size = hidden / heads;
  const PanelShape shape = ShapeOfPanels<Real>(1, size, size, heads);
  const auto fill = [&](int first_gate, int count) {
    packed = FillPanels(shape, 1, count * size, size, heads, packed, [&](Index head, int, Index k, Index unit) {
      return weight_hh[((head * Cell::gates + first_gate) * size + k) * size + unit];
    });
  };
  fill(0, split);
  if constexpr (Cell::phases == 2) fill(split, Cell::gates - split);
}
