// Parts of the forward engine of dense cells for cells whose equations are in the job. Include before
// dense/forward.inl, whose templates then find these for such cells.

template <class Real>
struct TilePlace;
template <class Panel, class Cell>
requires(!Custom<Cell>) void PlaceRows(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index slot_end,
                                       Index step, RowPlace<RealOf<Panel>>* places);
template <class Real>
HWY_INLINE typename Lanes<Real>::V StateOfNext(const RowPlace<Real>& row, Index k, Index restart_state, Index unit,
                                               Index count, typename Lanes<Real>::V computed);

/// Stands for the sizes that only the job knows.
struct NothingKept {
  static constexpr int saved = 0, states = 0, phases = 1;
};

template <class Panel, Custom Cell>
void PlaceRows(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index slot_end, Index step,
               RowPlace<RealOf<Panel>>* places) {
  PlaceRows<Panel, NothingKept>(job, part, slot_end, step, places);
  if (job.saved == nullptr) return;
  const custom::DerivedCell& cell = *static_cast<const CustomForward<RealOf<Panel>>&>(job).custom.cell;
  const auto saved = static_cast<Index>(cell.kept.size()), states = static_cast<Index>(cell.cell.states.size());
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index at = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    places[slot].saved = job.saved + at * saved * job.hidden;
    places[slot].prev = job.prev + at * states * job.hidden;
  }
}

/// Fetches rows ahead without the values kept for the backward pass, since only the job knows their places.
template <Custom Cell, int first_gate, int gate_count, int width, class Real>
void FetchRows(const RowPlace<Real>* rows, int count, Index hidden, Index first_unit, bool) {
  for (int m = 0; m < count; ++m) {
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * Lanes<Real>::lanes;
      for (int g = 0; rows[m].wx != nullptr && g < gate_count; ++g) hwy::Prefetch(rows[m].wx + g * hidden + unit);
      if (rows[m].y != nullptr) hwy::Prefetch(rows[m].y + unit);
    }
  }
}

/// The value of a leaf that enters a step: a state or a learnt vector.
template <class Real>
HWY_INLINE typename Lanes<Real>::V LoadEntering(const CustomForward<Real>& job, const Program::Leaf& leaf,
                                                const RowPlace<Real>& row, Index unit, Index count) {
  const Index row_state = job.plan.rows * job.hidden, k = leaf.index;
  if (leaf.operation != Operation::state) {
    return Lanes<Real>::load(job.custom.learnt + k * job.hidden + unit, count);
  }
  return Lanes<Real>::load((k == 0 ? row.h : row.others + (k - 1) * row_state) + unit, count);
}

/// Stores what a program computed for a vector of units of a row: result(i) is its result i. The states before the step
/// are kept before those after it take their place.
template <class Real, class Result>
HWY_INLINE void StoreCustom(const CustomForward<Real>& job, const RowPlace<Real>& row, Index unit, Index count,
                            const Result& result) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const custom::DerivedCell& cell = *job.custom.cell;
  const auto states = static_cast<Index>(cell.cell.states.size()), saved = static_cast<Index>(cell.kept.size());
  const Index row_state = job.plan.rows * job.hidden;
  const auto keep = [&](V value, Real* to) HWY_ATTR {
    if constexpr (L::lanes * sizeof(Real) == 64) {
      if (job.streams) return L::stream(value, to);
    }
    L::store(value, to, count);
  };
  L::store(result(0), row.y + unit, count);
  if (row.saved != nullptr) {
    for (Index i = 0; i < saved; ++i) keep(result(states + i), row.saved + i * job.hidden + unit);
    for (Index k = 0; k < states; ++k) {
      const Program::Leaf state{Operation::state, static_cast<int>(k), {}};
      keep(LoadEntering(job, state, row, unit, count), row.prev + k * job.hidden + unit);
    }
  }
  for (Index k = 1; k < states && row.every_state != nullptr; ++k) {
    L::store(result(k), row.every_state + (k - 1) * job.hidden + unit, count);
  }
  for (Index k = 0; k < states; ++k) {
    Real* const next = k == 0 ? row.next_h : row.next_others + (k - 1) * row_state;
    L::store(StateOfNext(row, k, job.restarts.state, unit, count, result(k)), next + unit, count);
  }
}

/// Some vectors of units of some rows at one step. No object holds a pointer to the sums: g++ would then keep the sums
/// of the products before in memory, which takes more than twice the time.
template <class Real, int gate_count, int width>
class CustomTile {
 public:
  using L = Lanes<Real>;
  using V = typename L::V;

  HWY_INLINE CustomTile(const CustomForward<Real>& job, bool trains)
      : job_(job), cell_(*job.custom.cell), program_(trains ? cell_.training : cell_.forward), slots_(program_) {}

  /// `part` and `w`: where its sums are.
  HWY_INLINE void add(const RowPlace<Real>& row, Index unit, Index count, int part, int w) {
    sites_[filled_++] = {&row, unit, count, part * gate_count * width + w};
  }

  HWY_INLINE void run(const V* of_input, const V* of_state) {
    for (int first = 0; first < filled_; first += slots_.together) {
      const int count = std::min(slots_.together, filled_ - first);
      for (const Program::Leaf& leaf : program_.leaves) {
        V* const to = slots_.at(leaf.slot);
        for (int j = 0; j < count; ++j) to[j] = load(leaf, sites_[first + j], of_input, of_state);
      }
      RunProgram(program_, count, slots_);
      for (int j = 0; j < count; ++j) store(sites_[first + j], j);
    }
  }

 private:
  struct Site {
    const RowPlace<Real>* row;
    Index unit, count;
    int sums;
  };

  /// Vectors of the largest tile of any number of gates.
  static constexpr int kMostSites = 32;

  HWY_INLINE V load(const Program::Leaf& leaf, const Site& at, const V* of_input, const V* of_state) const {
    switch (leaf.operation) {
      case Operation::input:
        if (job_.wx != nullptr) return L::load(at.row->wx + leaf.index * job_.hidden + at.unit, at.count);
        return of_input[at.sums + leaf.index * width];
      case Operation::recurrent:
        return of_state[at.sums + leaf.index * width];
      default:
        return LoadEntering(job_, leaf, *at.row, at.unit, at.count);
    }
  }

  HWY_INLINE V result(Index i, int j) { return slots_.at(program_.results[static_cast<std::size_t>(i)])[j]; }

  HWY_INLINE void store(const Site& at, int j) {
    StoreCustom(job_, *at.row, at.unit, at.count, [&](Index i) HWY_ATTR { return result(i, j); });
  }

  const CustomForward<Real>& job_;
  const custom::DerivedCell& cell_;
  const Program& program_;
  int filled_ = 0;
  Site sites_[kMostSites];
  TileSlots<V> slots_;
};

/// Returns the place of a row's sums of a gate, of W x or R h, for a cell whose units read means.
template <class Real>
HWY_INLINE Real* SumsOf(const CustomForward<Real>& job, const RowPlace<Real>& row, bool of_state, Index gate) {
  const auto gates = static_cast<Index>(job.custom.cell->cell.gates);
  return job.sums + (((&row - job.places) * 2 + (of_state ? 1 : 0)) * gates + gate) * job.hidden;
}

template <class Real, int gate_count, int width>
HWY_INLINE void KeepSums(const CustomForward<Real>& job, const TilePlace<Real>& place, int rows, int blocks,
                         const typename Lanes<Real>::V* of_input, const typename Lanes<Real>::V* of_state) {
  using L = Lanes<Real>;
  const Index head_size = job.hidden / job.heads;
  for (int p = 0; p < rows * blocks; ++p) {
    const RowPlace<Real>& row = place.rows[rows > 1 ? p : 0];
    for (int w = 0; w < width; ++w) {
      const Index unit = place.first_unit + (blocks > 1 ? p * width + w : w) * L::lanes, count = head_size - unit;
      if (count <= 0) break;
      for (int g = 0; g < gate_count; ++g) {
        const int from = (p * gate_count + g) * width + w;
        const Index to = place.head * head_size + unit, n = std::min<Index>(L::lanes, count);
        L::store(of_state[from], SumsOf(job, row, true, g) + to, n);
        if (job.wx == nullptr) L::store(of_input[from], SumsOf(job, row, false, g) + to, n);
      }
    }
  }
}

/// Applies the cells whose units read means, to all heads of the rows of a part.
template <Custom Cell, class Real>
void FinishStep(const DenseForward<Real>& base, const DensePart& part, Index slot_end) {
  const auto& job = static_cast<const CustomForward<Real>&>(base);
  if (!job.custom.cell->averages) return;
  using L = Lanes<Real>;
  using V = typename L::V;
  const Program& program = job.saved != nullptr ? job.custom.cell->training : job.custom.cell->forward;
  const Index head_size = job.mixed, heads = job.hidden / head_size;
  HeadSlots<V> slots(job.head, head_size);
  for (Index at = part.slot_begin * heads; at < slot_end * heads; ++at) {
    const RowPlace<Real>& row = job.places[at / heads];
    const Index first = at % heads * head_size;
    const auto count_of = [&](Index j) HWY_ATTR { return std::min<Index>(L::lanes, head_size - j * L::lanes); };
    for (const Program::Leaf& leaf : program.leaves) {
      const bool of_state = leaf.operation == Operation::recurrent,
                 sum = of_state || leaf.operation == Operation::input;
      const Real* from = sum ? SumsOf(job, row, of_state, leaf.index) : nullptr;
      if (leaf.operation == Operation::input && job.wx != nullptr) from = row.wx + leaf.index * job.hidden;
      V* const to = slots.at(leaf.slot);
      for (Index j = 0; j < slots.together; ++j) {
        const Index unit = first + j * L::lanes;
        to[j] = sum ? L::load(from + unit, count_of(j)) : LoadEntering(job, leaf, row, unit, count_of(j));
      }
    }
    RunProgram(program, static_cast<int>(slots.together), slots);
    for (Index j = 0; j < slots.together; ++j) {
      StoreCustom(job, row, first + j * L::lanes, count_of(j),
                  [&](Index i) HWY_ATTR { return slots.at(program.results[static_cast<std::size_t>(i)])[j]; });
    }
  }
}

template <class Panel, Custom Cell, int first_gate, int gate_count, int width>
void TileGates(const DenseForward<RealOf<Panel>>& job, const TilePlace<RealOf<Panel>>& place, int rows, int blocks,
               const typename Lanes<RealOf<Panel>>::V* of_input, const typename Lanes<RealOf<Panel>>::V* of_state) {
  using Real = RealOf<Panel>;
  constexpr Index lanes = Lanes<Real>::lanes;
  const Index head_size = job.hidden / job.heads, head_unit = place.head * head_size;
  const auto& own = static_cast<const CustomForward<Real>&>(job);
  if (own.custom.cell->averages) {
    return KeepSums<Real, gate_count, width>(own, place, rows, blocks, of_input, of_state);
  }
  CustomTile<Real, gate_count, width> tile(own, place.rows[0].saved != nullptr);
  for (int p = 0; p < rows * blocks; ++p) {
    const Index first_unit = blocks > 1 ? place.first_unit + p * width * lanes : place.first_unit;
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * lanes, count = std::min<Index>(lanes, head_size - unit);
      if (count <= 0) break;
      tile.add(place.rows[rows > 1 ? p : 0], head_unit + unit, count, p, w);
    }
  }
  tile.run(of_input, of_state);
}
