// Parts of the backward engine of dense cells for cells whose equations are in the job. Include before
// dense/backward.inl.

template <class Panel, class Cell>
struct BackwardPointwise;

template <class Panel, Custom Cell>
struct BackwardPointwise<Panel, Cell> {
  using Real = RealOf<Panel>;
  const DenseBackward<Real>& job;

  Index states() const {
    return static_cast<Index>(static_cast<const CustomBackward<Real>&>(job).custom.cell->cell.states.size());
  }
  template <class Site>
  HWY_INLINE Real* dstate(const Site& at, Index k) const {
    return job.dstate + (k * job.plan.rows + at.slot) * job.hidden + at.unit;
  }
};

/// Some vectors of units of some rows at one step; with HeadSlots all those of a head.
template <class Panel, class Cell, class Slots>
class CustomGradients {
 public:
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;

  template <class... OfSlots>
  HWY_INLINE CustomGradients(const CustomBackward<Real>& job, Index step, const OfSlots&... of_slots)
      : job_(job),
        cell_(*job.custom.cell),
        program_(cell_.backward),
        step_(step),
        states_(static_cast<Index>(cell_.cell.states.size())),
        saved_(static_cast<Index>(cell_.kept.size())),
        learnt_(static_cast<Index>(cell_.cell.learnt.size())),
        slots_(of_slots...) {}

  /// `cell`: of [cells, ...]; `unit` counts from the first head's.
  HWY_INLINE void add(Index slot, Index cell, Index unit, Index count) {
    sites_[filled_++] = {slot, cell, unit, count};
    if (filled_ == slots_.together) flush();
  }

  HWY_INLINE void flush() {
    run(filled_, [&](int j) HWY_ATTR { return sites_[j]; });
    filled_ = 0;
  }

  HWY_INLINE void add_head(Index slot, Index cell, Index first_unit, Index units) {
    run(static_cast<int>(slots_.together), [&](int j) HWY_ATTR {
      return Site{slot, cell, first_unit + j * L::lanes, std::min<Index>(L::lanes, units - j * L::lanes)};
    });
  }

 private:
  struct Site {
    Index slot, cell, unit, count;
  };

  template <class At>
  HWY_INLINE void run(int n, const At& site) {
    for (const Program::Leaf& leaf : program_.leaves) {
      V* const to = slots_.at(leaf.slot);
      for (int j = 0; j < n; ++j) to[j] = load(leaf, site(j));
    }
    RunProgram(program_, n, slots_);
    for (int j = 0; j < n; ++j) store(site(j), j);
  }

  HWY_INLINE V load(const Program::Leaf& leaf, const Site& at) const {
    const Index i = leaf.index, H = job_.hidden;
    switch (leaf.operation) {
      case Operation::kept:
        return L::load(job_.saved + (at.cell * saved_ + i) * H + at.unit, at.count);
      case Operation::state:
        return L::load(job_.prev + (at.cell * states_ + i) * H + at.unit, at.count);
      case Operation::gradient:
        return load_dnext(at, i);
      default:
        return L::load(job_.custom.learnt + i * H + at.unit, at.count);
    }
  }

  HWY_INLINE Real* dstate(const Site& at, Index k) const { return BackwardPointwise<Panel, Cell>{job_}.dstate(at, k); }

  HWY_INLINE V load_dnext(const Site& at, Index k) const {
    const V later = L::load(dstate(at, k), at.count);
    const Index row = job_.plan.row_of[at.slot], time = job_.plan.time(at.slot, step_);
    if (k == 0) return later + L::load(job_.dy + job_.dy_map.at(row, time) + at.unit, at.count);
    if (job_.dstates == nullptr) return later;
    const Real* const of_step = job_.dstates + job_.dstates_map.at(row, time) + (k - 1) * job_.hidden;
    return later + L::load(of_step + at.unit, at.count);
  }

  HWY_INLINE V result(Index i, int j) { return slots_.at(program_.results[static_cast<std::size_t>(i)])[j]; }

  HWY_INLINE void store(const Site& at, int j) {
    constexpr int G = Cell::gates;
    const Index row = job_.row_of(at.slot, step_), H = job_.hidden;
    const Index offset = row * job_.gates_stride + at.unit;
    for (int g = 0; g < G; ++g) L::store(result(g, j), job_.dwx + offset + g * H, at.count);
    for (int g = 0; g < G && job_.drh != job_.dwx; ++g) L::store(result(G + g, j), job_.drh + offset + g * H, at.count);
    for (Index k = 0; k < states_; ++k) L::store(result(2 * G + k, j), dstate(at, k), at.count);
    for (Index k = 0; k < learnt_; ++k) {
      L::store(result(2 * G + states_ + k, j), job_.dlearnt + (row * learnt_ + k) * H + at.unit, at.count);
    }
  }

  const CustomBackward<Real>& job_;
  const custom::DerivedCell& cell_;
  const Program& program_;
  Index step_, states_, saved_, learnt_;
  int filled_ = 0;
  Site sites_[kTileVectors];
  Slots slots_;
};

/// Means read all units of a head, which belong to one thread.
template <class Panel, Custom Cell>
void BackwardHeads(const CustomBackward<RealOf<Panel>>& job, const DensePart& part, Index slot_end, Index step) {
  const Index head_size = job.mixed;
  CustomGradients<Panel, Cell, HeadSlots<typename Lanes<RealOf<Panel>>::V>> gradients(job, step, job.head, head_size);
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index cell = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    for (Index first = 0; first < job.hidden; first += head_size) gradients.add_head(slot, cell, first, head_size);
  }
}

template <class Panel, Custom Cell>
void BackwardGates(const DenseBackward<RealOf<Panel>>& job, const DensePart& part, Index slot_end, Index step,
                   Index units) {
  constexpr Index lanes = Lanes<RealOf<Panel>>::lanes;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  using V = typename Lanes<RealOf<Panel>>::V;
  const auto& own = static_cast<const CustomBackward<RealOf<Panel>>&>(job);
  if (own.custom.cell->averages) return BackwardHeads<Panel, Cell>(own, part, slot_end, step);
  CustomGradients<Panel, Cell, TileSlots<V>> gradients(own, step, own.custom.cell->backward);
  for (Index slot = part.slot_begin; slot < slot_end; ++slot) {
    const Index cell = job.plan.cells.at(job.plan.row_of[slot], job.plan.time(slot, step));
    for (Index block = part.block_begin; block < part.block_end; ++block) {
      const Index head = block / blocks_per_head, begin = block % blocks_per_head * units;
      for (Index unit = begin; unit < std::min(begin + units, head_size); unit += lanes) {
        gradients.add(slot, cell, head * head_size + unit, std::min(lanes, head_size - unit));
      }
    }
  }
  gradients.flush();
}
