// What the forward engine of dense cells does otherwise for cells whose equations are in the job. Include before
// dense/forward.inl, whose templates then find these for such cells.

template <class Real>
struct TilePlace;
template <class Panel, class Cell>
requires(!Traced<Cell>) void PlaceRows(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index slot_end,
                                       Index step, RowPlace<RealOf<Panel>>* places);

/// Stands for the sizes that only the job knows.
struct NothingKept {
  static constexpr int saved = 0, states = 0, phases = 1;
};

template <class Panel, Traced Cell>
void PlaceRows(const DenseForward<RealOf<Panel>>& job, const DensePart& part, Index slot_end, Index step,
               RowPlace<RealOf<Panel>>* places) {
  PlaceRows<Panel, NothingKept>(job, part, slot_end, step, places);
  if (job.saved == nullptr) return;
  const formula::DerivedCell& cell = *static_cast<const TracedForward<RealOf<Panel>>&>(job).traced.cell;
  const auto saved = static_cast<Index>(cell.kept.size()), states = static_cast<Index>(cell.cell.states.size());
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index at = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    places[slot].saved = job.saved + at * saved * job.hidden;
    places[slot].prev = job.prev + at * states * job.hidden;
  }
}

/// What is kept for the backward pass lies at places that only the job knows: it is not asked for.
template <Traced Cell, int first_gate, int gate_count, int width, class Real>
HWY_NOINLINE void FetchRows(const RowPlace<Real>* rows, int count, Index hidden, Index first_unit, bool) {
  for (int m = 0; m < count; ++m) {
    for (int w = 0; w < width; ++w) {
      const Index unit = first_unit + w * Lanes<Real>::lanes;
      for (int g = 0; rows[m].wx != nullptr && g < gate_count; ++g) hwy::Prefetch(rows[m].wx + g * hidden + unit);
      if (rows[m].y != nullptr) hwy::Prefetch(rows[m].y + unit);
    }
  }
}

/// Some vectors of units of some rows at one step. No object holds a pointer to the sums: g++ would then keep the sums
/// of the products before in memory, which takes more than twice the time.
template <class Real, int gate_count, int width>
class TracedTile {
 public:
  using L = Lanes<Real>;
  using V = typename L::V;

  HWY_INLINE TracedTile(const TracedForward<Real>& job, bool trains)
      : job_(job),
        cell_(*job.traced.cell),
        program_(trains ? cell_.training : cell_.forward),
        states_(static_cast<Index>(cell_.cell.states.size())),
        slots_(program_) {}

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
      case Operation::state:
        return L::load(state(at, leaf.index), at.count);
      default:
        return L::load(job_.traced.learnt + leaf.index * job_.hidden + at.unit, at.count);
    }
  }

  HWY_INLINE const Real* state(const Site& at, Index k) const {
    return (k == 0 ? at.row->h : at.row->others + (k - 1) * row_state()) + at.unit;
  }
  HWY_INLINE Index row_state() const { return job_.plan.rows * job_.hidden; }
  HWY_INLINE V result(Index i, int j) { return slots_.at(program_.results[static_cast<std::size_t>(i)])[j]; }

  HWY_INLINE void keep(V value, Real* to, Index count) const {
    if constexpr (L::lanes * sizeof(Real) == 64) {
      if (job_.streams) return L::stream(value, to);
    }
    L::store(value, to, count);
  }

  /// The states before the step are kept before those after it take their place.
  HWY_INLINE void store(const Site& at, int j) {
    const RowPlace<Real>& row = *at.row;
    L::store(result(0, j), row.y + at.unit, at.count);
    if (row.saved != nullptr) {
      const auto saved = static_cast<Index>(cell_.kept.size());
      for (Index i = 0; i < saved; ++i) {
        keep(result(states_ + i, j), row.saved + i * job_.hidden + at.unit, at.count);
      }
      for (Index k = 0; k < states_; ++k) {
        keep(L::load(state(at, k), at.count), row.prev + k * job_.hidden + at.unit, at.count);
      }
    }
    for (Index k = 1; k < states_ && row.every_state != nullptr; ++k) {
      L::store(result(k, j), row.every_state + (k - 1) * job_.hidden + at.unit, at.count);
    }
    for (Index k = 0; k < states_; ++k) {
      Real* const next = k == 0 ? row.next_h : row.next_others + (k - 1) * row_state();
      L::store(row.clear ? V(0) : result(k, j), next + at.unit, at.count);
    }
  }

  const TracedForward<Real>& job_;
  const formula::DerivedCell& cell_;
  const Program& program_;
  Index states_;
  int filled_ = 0;
  Site sites_[kMostSites];
  TileSlots<V> slots_;
};

template <class Panel, Traced Cell, int first_gate, int gate_count, int width>
HWY_NOINLINE void TileGates(const DenseForward<RealOf<Panel>>& job, const TilePlace<RealOf<Panel>>& place, int rows,
                            int blocks, const typename Lanes<RealOf<Panel>>::V* of_input,
                            const typename Lanes<RealOf<Panel>>::V* of_state) {
  using Real = RealOf<Panel>;
  constexpr Index lanes = Lanes<Real>::lanes;
  const Index head_size = job.hidden / job.heads, head_unit = place.head * head_size;
  TracedTile<Real, gate_count, width> tile(static_cast<const TracedForward<Real>&>(job),
                                           place.rows[0].saved != nullptr);
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
