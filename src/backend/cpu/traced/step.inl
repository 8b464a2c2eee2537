// The same for steps of streams. Include after dense/step.inl.

template <class Panel, Traced Cell>
struct StepPointwise<Panel, Cell> {
  using Real = RealOf<Panel>;
  using L = LanesOf<Panel>;
  using V = GatesOf<Panel>;
  static constexpr int G = Cell::gates;
  const CellStep<Real>& base;
  bool h_is_read;  // by all who need the old one: the new one may take its place

  template <bool>
  HWY_INLINE void gates(Index unit, Index count, const V (&wx)[G], const V (&rh)[G]) const {
    const auto& job = static_cast<const TracedStep<Real>&>(base);
    const Program& program = job.traced.cell->forward;
    TileSlots<V> slots(program);
    for (const Program::Leaf& leaf : program.leaves) {
      V& to = *slots.at(leaf.slot);
      if (leaf.operation == Operation::input) to = wx[leaf.index];
      if (leaf.operation == Operation::recurrent) to = rh[leaf.index];
      if (leaf.operation == Operation::state) to = L::load(job.state[leaf.index] + unit, count);
      if (leaf.operation == Operation::learnt) {
        to = L::load(job.traced.learnt + leaf.index * job.hidden + unit, count);
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
