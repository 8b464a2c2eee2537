// Backward engine of dense cells: at each step the gates' gradients, then through the transposed recurrent matrix the
// gradient of the state before. The weights' gradients are sums over all steps, done by the caller piece by piece.

/// One vector of units of one slot at one step: which elements they are in every buffer.
struct BackwardSite {
  Index slot, step, cell, unit, count;
  Index head, unit_of_head;
};

template <class Panel, class Cell>
struct BackwardPointwise {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  const DenseBackward<Real>& job;

  HWY_INLINE void load(const BackwardSite& at, V (&save)[N], V (&prev)[S]) const {
    for (int i = 0; i < N; ++i) save[i] = L::load(job.saved + (at.cell * N + i) * job.hidden + at.unit, at.count);
    for (int k = 0; k < S; ++k) prev[k] = L::load(job.prev + (at.cell * S + k) * job.hidden + at.unit, at.count);
  }

  static constexpr Index states() { return S; }
  HWY_INLINE Real* dstate(const BackwardSite& at, Index k) const {
    return job.dstate + (k * job.plan.rows + at.slot) * job.hidden + at.unit;
  }

  HWY_INLINE V load_dy(const BackwardSite& at, Index offset) const {
    if constexpr (RoundsOperands<Panel>) {
      if (job.dy_bf16 != nullptr) return LoadStored(job.dy_bf16 + offset, at.count);
    }
    return L::load(job.dy + offset, at.count);
  }

  HWY_INLINE void load_dnext(const BackwardSite& at, V (&dnext)[S]) const {
    const Index row = job.plan.row_of[at.slot];
    const Index time = job.plan.time(at.slot, at.step);
    for (int k = 0; k < S; ++k) dnext[k] = L::load(dstate(at, k), at.count);
    dnext[0] = dnext[0] + load_dy(at, job.dy_map.at(row, time) + at.unit);
    if (S == 1 || job.dstates == nullptr) return;
    const Real* dstates = job.dstates + job.dstates_map.at(row, time) + at.unit;
    for (int k = 1; k < S; ++k) dnext[k] = dnext[k] + L::load(dstates + (k - 1) * job.hidden, at.count);
  }

  HWY_INLINE void store_gate(const BackwardSite& at, int g, V dwx, V drh) const {
    if constexpr (RoundsOperands<Panel>) {
      const Index offset = (at.cell * G + g) * job.hidden + at.unit;
      const RoundedGradients& to = job.rounded;
      StoreRounded(dwx, to.dwx + offset, at.count);
      if (to.drh != to.dwx) StoreRounded(drh, to.drh + offset, at.count);
      const Index inputs = PanelInputs<Panel>(job.hidden / job.heads);
      StoreRounded(drh, to.step[at.step & 1] + ((at.slot * job.heads + at.head) * G + g) * inputs + at.unit_of_head,
                   at.count);
    } else {
      const Index offset = job.row_of(at.slot, at.step) * job.gates_stride + g * job.hidden + at.unit;
      L::store(dwx, job.dwx + offset, at.count);
      if (job.drh != job.dwx) L::store(drh, job.drh + offset, at.count);
    }
  }

  /// The gradient of the states before the step, as far as it does not pass through the recurrent product.
  HWY_INLINE void store_dprev(const BackwardSite& at, const V (&dprev)[S]) const {
    for (int k = 0; k < S; ++k) L::store(dprev[k], dstate(at, k), at.count);
  }

  HWY_INLINE void gates(const BackwardSite& at) const {
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
    if constexpr (RoundsOperands<Panel>) {
      StoreRounded(prev[0], job.rounded.h + at.cell * job.hidden + at.unit, at.count);
    }
  }

  HWY_INLINE void first_phase(const BackwardSite& at, V doperand) const {
    V save[N], prev[S], dprev[S], dwx[G], drh[G];
    load(at, save, prev);
    for (int k = 0; k < S; ++k) dprev[k] = L::load(dstate(at, k), at.count);
    Cell::backward_first(save, prev, doperand, dwx, drh, dprev);
    store_gate(at, 0, dwx[0], drh[0]);
    store_dprev(at, dprev);
    const V operand = Cell::operand(save, prev);
    if constexpr (RoundsOperands<Panel>) {
      StoreRounded(operand, job.rounded.operand + at.cell * job.hidden + at.unit, at.count);
    } else {
      L::store(operand, job.operand + job.row_of(at.slot, at.step) * job.hidden + at.unit, at.count);
    }
  }
};

/// A tile of the transposed product: `rows` slots from `slot` on, one block of `width` vectors of units.
struct GradientPlace {
  Index slot, rows, step, head, first_unit;
  int width;
};

/// Gates [first, end) of a cell's G whose gradients are multiplied, through which panels, and what becomes of the
/// products acc [rows][width]. Tiles call that function by its pointer. They are therefore compiled once for all cells.
template <class Panel>
struct GradientGroup {
  using V = typename Lanes<RealOf<Panel>>::V;
  const Panel* panels;
  Index first, end, gates;  // gates: G
  void (*finish)(const DenseBackward<RealOf<Panel>>& job, const GradientPlace& place, const V* acc);
};

/// The rounded gradients of a slot's gates from the group's first on, [gates, inputs].
template <class Panel>
HWY_INLINE const std::uint16_t* StepGradients(const DenseBackward<RealOf<Panel>>& job,
                                              const GradientGroup<Panel>& group, Index slot, Index step, Index head) {
  const Index inputs = PanelInputs<Panel>(job.hidden / job.heads);
  return job.rounded.step[step & 1] + ((slot * job.heads + head) * group.gates + group.first) * inputs;
}

/// acc [rows][width] += sum over gates [first, end) and units i of drh[gate, i] * R[gate, i][unit].
template <class Panel, int width, int rows>
HWY_INLINE void TransposedProduct(const DenseBackward<RealOf<Panel>>& job, const GradientGroup<Panel>& group,
                                  Index slot, Index step, Index head, const Panel* panel,
                                  typename Lanes<RealOf<Panel>>::V (&acc)[rows][width]) {
  using Real = RealOf<Panel>;
  const Index head_size = job.hidden / job.heads;
  const OperandOf<Panel>* a[rows];
  if constexpr (RoundsOperands<Panel>) {
    for (int m = 0; m < rows; ++m) a[m] = StepGradients(job, group, slot + m, step, head);
    AccumulatePanel<Real, rows, width>(a, (group.end - group.first) * PanelInputs<Panel>(head_size), panel, acc);
  } else {
    for (Index g = group.first; g < group.end; ++g) {
      const Real* first = job.drh + job.row_of(slot, step) * job.gates_stride + g * job.hidden + head * head_size;
      for (int m = 0; m < rows; ++m) a[m] = first + m * job.gates_stride;
      panel = AccumulatePanel<Real, rows, width>(a, head_size, panel, acc);
    }
  }
}

/// At a reset, the gradients of the states before the step belong to those that the row started again with.
template <class Panel, class Cell>
HWY_INLINE void LeaveGradients(const DenseBackward<RealOf<Panel>>& job, const BackwardSite& at, Index states) {
  using L = Lanes<RealOf<Panel>>;
  const BackwardPointwise<Panel, Cell> pointwise{job};
  RealOf<Panel>* const to = job.drestarts.at(job.plan.row_of[at.slot], job.plan.time(at.slot, at.step));
  for (Index k = 0; k < states; ++k) {
    RealOf<Panel>* const from = pointwise.dstate(at, k);
    if (to != nullptr) {
      RealOf<Panel>* const sum = to + k * job.drestarts.state + at.unit;
      L::store(L::load(sum, at.count) + L::load(from, at.count), sum, at.count);
    }
    L::store(typename L::V(0), from, at.count);
  }
}

/// The product is the gradient of h through the gates that read R h or, of the second phase of a cell, that of the
/// operand of its last gates.
template <class Panel, class Cell, bool phase_two>
void FinishBackward(const DenseBackward<RealOf<Panel>>& job, const GradientPlace& place,
                    const typename Lanes<RealOf<Panel>>::V* acc) {
  using L = Lanes<RealOf<Panel>>;
  const Index head_size = job.hidden / job.heads, step = place.step, head = place.head;
  const BackwardPointwise<Panel, Cell> pointwise{job};
  for (Index slot = place.slot; slot < place.slot + place.rows; ++slot, acc += place.width) {
    const Index cell = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    const bool restarts = job.plan.resets(slot, step);
    for (int w = 0; w < place.width; ++w) {
      const Index unit = place.first_unit + w * L::lanes;
      const Index count = std::min<Index>(L::lanes, head_size - unit);
      if (count <= 0) break;
      const BackwardSite at{slot, step, cell, head * head_size + unit, count, head, unit};
      if constexpr (phase_two) {
        pointwise.first_phase(at, acc[w]);
      } else {
        RealOf<Panel>* dh = pointwise.dstate(at, 0);
        typename L::V gradient = L::load(dh, count) + acc[w];
        if (job.clip > 0) gradient = Clamp(gradient, typename L::V(-job.clip), typename L::V(job.clip));
        L::store(gradient, dh, count);
        if (restarts) LeaveGradients<Panel, Cell>(job, at, pointwise.states());
      }
    }
  }
}

template <class Panel, int width, int rows>
HWY_INLINE void BackwardTile(const DenseBackward<RealOf<Panel>>& job, const GradientGroup<Panel>& group, Index slot,
                             Index step, Index head, Index first_unit, const Panel* panel) {
  using V = typename Lanes<RealOf<Panel>>::V;
  V acc[rows][width];
  for (int m = 0; m < rows; ++m) {
    for (int w = 0; w < width; ++w) acc[m][w] = V(0);
  }
  TransposedProduct<Panel, width, rows>(job, group, slot, step, head, panel, acc);
  V sums[rows][width];
  CopySums<RealOf<Panel>>(acc, sums);
  group.finish(job, {slot, rows, step, head, first_unit, width}, sums[0]);
}

/// BackwardTiles() of narrow heads.
template <int width>
void NarrowBackwardTiles(const DenseBackward<float>& job, const GradientGroup<float>& group, const DensePart& part,
                         Index slot_end, Index step) {
  constexpr Index units = width * Simd::lanes;
  const Index gate_count = group.end - group.first;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const Index first_unit = block * units;
    for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
      Simd acc[1][width], sums[1][width];
      for (Simd& sum : acc[0]) sum = Simd(0);
      const float* drh = job.drh + job.row_of(slot, step) * job.gates_stride + group.first * job.hidden + first_unit;
      const float* panel = group.panels + block * job.mixed * gate_count * units;
      for (Index g = 0; g < gate_count; ++g, drh += job.hidden, panel += job.mixed * units) {
        AccumulateNarrow<1, width>(drh, job.hidden - first_unit, job.mixed, panel, acc[0]);
      }
      CopySums<float>(acc, sums);
      group.finish(job, {slot, 1, step, 0, first_unit, width}, sums[0]);
    }
  }
}

template <int width, class Panel>
void BackwardTiles(const DenseBackward<RealOf<Panel>>& job, const GradientGroup<Panel>& group, const DensePart& part,
                   Index slot_end, Index step) {
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<RealOf<Panel>>::lanes;
  const Index blocks_per_head = (head_size + units - 1) / units;
  const Index gate_count = group.end - group.first;
  if constexpr (std::is_same_v<Panel, float>) {
    if (job.mixed < head_size) return NarrowBackwardTiles<width>(job, group, part, slot_end, step);
  }
  ForEachBlock(part, step, 1, [&](Index block, Index) HWY_ATTR {
    const Index head = block / blocks_per_head;
    const Index first_unit = block % blocks_per_head * units;
    const Panel* panel = group.panels + block * HeadStride<Panel>(head_size) * gate_count * units;
    ForEachTile<MaxTileRows<Panel, width>()>(part.slot_begin, slot_end, [&](auto rows, Index slot) HWY_ATTR {
      BackwardTile<Panel, width, decltype(rows)::value>(job, group, slot, step, head, first_unit, panel);
    });
  });
}

/// An overload serves panels whose products work in another way.
template <int width, class Panel>
void BackwardProduct(const DenseBackward<RealOf<Panel>>& job, const GradientGroup<Panel>& group, const DensePart& part,
                     Index slot_end, Index step) {
  BackwardTiles<width>(job, group, part, slot_end, step);
}

/// The gates' gradients of a part at one step.
template <class Panel, class Cell>
requires(!Custom<Cell>) void BackwardGates(const DenseBackward<RealOf<Panel>>& job, const DensePart& part,
                                           Index slot_end, Index step, Index units) {
  constexpr Index lanes = Lanes<RealOf<Panel>>::lanes;
  const Index head_size = job.hidden / job.heads;
  const Index blocks_per_head = (head_size + units - 1) / units;
  const BackwardPointwise<Panel, Cell> pointwise{job};
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index cell = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    for (Index block = part.block_begin; block < part.block_end; ++block) {
      const Index head = block / blocks_per_head;
      const Index begin = block % blocks_per_head * units;
      for (Index unit = begin; unit < std::min(begin + units, head_size); unit += lanes) {
        pointwise.gates({slot, step, cell, head * head_size + unit, std::min(lanes, head_size - unit), head, unit});
      }
    }
  }
}

template <class Panel, class Cell, int width>
void BackwardSteps(const DenseBackward<RealOf<Panel>>& job, const DensePart& part) {
  constexpr int split = FirstGroup<Cell>();
  const Index head_size = job.hidden / job.heads;
  const Index units = width * Lanes<RealOf<Panel>>::lanes;
  const Index blocks = (head_size + units - 1) / units * job.heads;
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  const GradientGroup<Panel> group{panels, 0, split, Cell::gates, &FinishBackward<Panel, Cell, false>};
  PanelUse<Panel> use;
  use.set_rows(part.slot_end - part.slot_begin);
  const auto wait = [&] {
    if (part.barrier != nullptr) part.barrier->wait();
  };
  Index slot_end = part.slot_begin;
  for (Index step = std::min(job.plan.length[part.slot_begin], job.step_end) - 1; step >= job.step_begin; --step) {
    while (slot_end < part.slot_end && job.plan.length[slot_end] > step) ++slot_end;
    BackwardGates<Panel, Cell>(job, part, slot_end, step, units);
    wait();
    if constexpr (Cell::phases == 2) {
      const Panel* const second_panels = panels + blocks * HeadStride<Panel>(job.mixed) * split * units;
      BackwardProduct<width>(
          job, GradientGroup<Panel>{second_panels, split, Cell::gates, Cell::gates, &FinishBackward<Panel, Cell, true>},
          part, slot_end, step);
      wait();
    }
    BackwardProduct<width>(job, group, part, slot_end, step);
  }
}

template <class Panel, class Cell>
void RunDenseBackward(const DenseBackward<RealOf<Panel>>& job, const DensePart& part) {
  if (part.slot_begin >= part.slot_end) return;
  const int width = BlockVectors<RealOf<Panel>>(1, job.hidden / job.heads);
  if (width == 1) return BackwardSteps<Panel, Cell, 1>(job, part);
  if (width == 2) return BackwardSteps<Panel, Cell, 2>(job, part);
  return BackwardSteps<Panel, Cell, 4>(job, part);
}

template <class Panel, class Cell>
PanelShape BackwardPanels(Index hidden, Index heads) {
  PanelShape shape = ShapeOfPanels<Panel>(1, hidden, heads);
  shape.size = PanelReals<Panel>(shape.blocks * shape.units * HeadStride<Panel>(shape.mixed) * Cell::gates);
  return shape;
}

template <class Panel, class Cell>
void PackBackward(Index hidden, Index heads, StoredWeights<RealOf<Panel>> weight_hh, RealOf<Panel>* packed) {
  constexpr int split = FirstGroup<Cell>();
  const Index size = hidden / heads, inputs = HeadStride<Panel>(size);
  const PanelShape shape = ShapeOfPanels<Panel>(1, hidden, heads);
  if constexpr (std::is_same_v<Panel, float>) {
    if (shape.heads < heads) return PackNarrowBackward<Cell>(shape, hidden, weight_hh.reals, packed);
  }
  WithStored<Panel>(weight_hh, size, [&](auto weights) {
    const auto fill = [&](int first_gate, int count, Panel* panels) {
      return FillStackedPanels(shape, count, size, inputs, size, panels, [&](Index head, int gate) {
        return PanelWeights{weights + (head * Cell::gates + first_gate + gate) * size * size, 0, size, 1};
      });
    };
    Panel* second = fill(0, split, reinterpret_cast<Panel*>(packed));
    if constexpr (Cell::phases == 2) fill(split, Cell::gates - split, second);
  });
}

template <class Panel, class Cell>
void FillDenseBackwardCell(CellKernels<RealOf<Panel>>& kernels) {
  if constexpr (RoundsOperands<Panel>) kernels.rounded_gradients = &PanelInputs<Panel>;
  kernels.backward_panels = &BackwardPanels<Panel, Cell>;
  kernels.pack_backward = &PackBackward<Panel, Cell>;
  kernels.dense_backward = &RunDenseBackward<Panel, Cell>;
  if constexpr (std::is_same_v<Panel, float>) kernels.narrow_gradient = &RunNarrowGradient;
}

template <class Panel>
void FillDenseBackwardAs(int cell, CellKernels<RealOf<Panel>>& kernels) {
  WithDenseCell(cell, [&](auto tag) { FillDenseBackwardCell<Panel, typename decltype(tag)::type>(kernels); });
}
