// Parts of the engine of stream steps for cells whose equations are in the job. Include after dense/step.inl.

template <class Panel, Custom Cell>
struct StepPointwise<Panel, Cell> {
  using Real = RealOf<Panel>;
  using L = LanesOf<Panel>;
  using V = GatesOf<Panel>;
  static constexpr int G = Cell::gates;
  const CellStep<Real>& base;
  bool h_is_read;  // by all who need the old one: the new one may take its place

  /// Not inlined: blocks of many widths call it, and the program takes much longer than the call.
  template <bool>
  HWY_NOINLINE void gates(Index unit, Index count, const V (&wx)[G], const V (&rh)[G]) const {
    const auto& job = static_cast<const CustomStep<Real>&>(base);
    const Program& program = job.custom.cell->forward;
    if (job.custom.cell->averages) {
      for (int g = 0; g < G; ++g) {
        L::store(wx[g], job.sums + g * job.hidden + unit, count);
        L::store(rh[g], job.sums + (G + g) * job.hidden + unit, count);
      }
      return;
    }
    TileSlots<V> slots(program);
    for (const Program::Leaf& leaf : program.leaves) {
      V& to = *slots.at(leaf.slot);
      if (leaf.operation == Operation::input) to = wx[leaf.index];
      if (leaf.operation == Operation::recurrent) to = rh[leaf.index];
      if (leaf.operation == Operation::state) to = L::load(job.state[leaf.index] + unit, count);
      if (leaf.operation == Operation::learnt) {
        to = L::load(job.custom.learnt + leaf.index * job.hidden + unit, count);
      }
    }
    RunProgram(program, 1, slots);
    const auto next = [&](std::size_t k) HWY_ATTR { return *slots.at(program.results[k]); };
    L::store(next(0), job.y + unit, count);
    for (std::size_t k = h_is_read ? 0 : 1; k < program.results.size(); ++k) {
      L::store(next(k), job.state[k] + unit, count);
    }
  }
};

/// The heads of a cell whose units read means, from the sums of all units.
template <class Real>
HWY_INLINE void StepHeads(const CustomStep<Real>& job) {
  using L = Lanes<Real>;
  const Program& program = job.custom.cell->forward;
  HeadSlots<typename L::V> slots(job.head, job.head_size);
  for (Index first = 0; first < job.hidden; first += job.head_size) {
    const auto count_of = [&](Index j) HWY_ATTR { return std::min<Index>(L::lanes, job.head_size - j * L::lanes); };
    for (const Program::Leaf& leaf : program.leaves) {
      const Index gate = leaf.index + (leaf.operation == Operation::recurrent ? job.custom.cell->cell.gates : 0);
      const Real* from = leaf.operation == Operation::state    ? job.state[leaf.index]
                         : leaf.operation == Operation::learnt ? job.custom.learnt + leaf.index * job.hidden
                                                               : job.sums + gate * job.hidden;
      for (Index j = 0; j < slots.together; ++j) {
        slots.at(leaf.slot)[j] = L::load(from + first + j * L::lanes, count_of(j));
      }
    }
    RunProgram(program, static_cast<int>(slots.together), slots);
    for (Index j = 0; j < slots.together; ++j) {
      const Index unit = first + j * L::lanes;
      L::store(slots.at(program.results[0])[j], job.y + unit, count_of(j));
      for (std::size_t k = 0; k < program.results.size(); ++k) {
        L::store(slots.at(program.results[k])[j], job.state[k] + unit, count_of(j));
      }
    }
  }
}

template <class Panel, class Cell, bool narrow = false>
HWY_INLINE void KeepStepSums(const CustomStep<RealOf<Panel>>& job) {
  const StepBlocks blocks = BlocksOfStep<Panel>(Cell::gates, narrow ? job.hidden : job.head_size, narrow);
  const Panel* const panels = reinterpret_cast<const Panel*>(job.packed);
  StepGates<Panel, Cell, 0, Cell::gates, narrow>(job, blocks, StepInput<Panel>(job), job.state[0], panels, false);
}

template <class Panel, class Cell>
void RunCustomStep(const CellStep<RealOf<Panel>>& base) {
  const auto& job = static_cast<const CustomStep<RealOf<Panel>>&>(base);
  if (!job.custom.cell->averages) return RunDenseStep<Panel, Cell>(job);
  const auto keep_sums = [&](auto tag) HWY_ATTR { KeepStepSums<typename decltype(tag)::type, Cell>(job); };
  if constexpr (std::is_same_v<Panel, float>) {
    NarrowHeads<Panel>(job.hidden, job.heads) ? KeepStepSums<Panel, Cell, true>(job)
                                              : WithStepPanel<Panel>(job.head_size, keep_sums);
  } else {
    keep_sums(std::type_identity<Panel>());
  }
  StepHeads(job);
}
