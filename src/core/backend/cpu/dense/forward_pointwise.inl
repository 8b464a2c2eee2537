// Pointwise part of the forward engine of dense cells: from the sums of a vector of units to the cell's results.

/// One vector of units of one row at one step.
template <class Real>
struct Site {
  const RowPlace<Real>& row;
  Index unit, count;
  Index operand;  // of [heads, inputs], where operands are rounded
};

/// True if a vector fills a cache line. Non-temporal stores of parts of a line would cost more than they save.
template <class Real>
constexpr bool StreamsLines = Lanes<Real>::lanes * sizeof(Real) == 64;

/// State k with which a row's next step starts: `computed`, or the one of a reset.
template <class Real>
HWY_INLINE typename Lanes<Real>::V StateOfNext(const RowPlace<Real>& row, Index k, Index restart_state, Index unit,
                                               Index count, typename Lanes<Real>::V computed) {
  if (!row.restarts) return computed;
  if (row.restart == nullptr) return typename Lanes<Real>::V(0);
  return Lanes<Real>::load(row.restart + k * restart_state + unit, count);
}

template <class Panel, class Cell>
struct ForwardPointwise {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = GatesOf<Panel>;
  using At = Site<Real>;
  static constexpr int G = Cell::gates, S = Cell::states, N = Cell::saved;
  Index hidden, state, restart_state;  // H, B * H, and that of RestartStates
  bool streams;

  /// The input product where it was made beforehand.
  template <int first, int count>
  HWY_INLINE void load_gates(const At& at, V (&wx)[G]) const {
    for (int g = first; g < first + count; ++g) wx[g] = L::load(at.row.wx + g * hidden + at.unit, at.count);
  }

  HWY_INLINE void load_state(const At& at, V (&prev)[S]) const {
    prev[0] = L::load(at.row.h + at.unit, at.count);
    for (int k = 1; k < S; ++k) prev[k] = L::load(at.row.others + (k - 1) * state + at.unit, at.count);
  }

  /// Stores the operand of the next product rounded too, if the product uses it rounded.
  HWY_INLINE void round_operand(const At& at, V value, std::uint16_t* row) const {
    if constexpr (RoundsOperands<Panel>) StoreRounded(value, row + at.operand, at.count);
  }

  /// Stores a value for the backward pass.
  HWY_INLINE void keep(const At& at, V value, Real* to) const {
    if constexpr (StreamsLines<Real>) {
      if (streams) return L::stream(value, to);
    }
    L::store(value, to, at.count);
  }

  HWY_INLINE void store_output(const At& at, V y) const {
    if constexpr (RoundsOperands<Panel>) {
      if (at.row.y_bf16 != nullptr) return StoreRounded(y, at.row.y_bf16 + at.unit, at.count);
    }
    L::store(y, at.row.y + at.unit, at.count);
  }

  /// Writes the output, what training needs, and the state for the next step.
  HWY_INLINE void finish(const At& at, const V (&prev)[S], const V (&next)[S], const V (&save)[N]) const {
    const RowPlace<Real>& row = at.row;
    store_output(at, next[0]);
    if (row.saved != nullptr) {
      for (int i = 0; i < N; ++i) keep(at, save[i], row.saved + i * hidden + at.unit);
      for (int k = 0; k < S; ++k) keep(at, prev[k], row.prev + k * hidden + at.unit);
    }
    if constexpr (S > 1) {
      for (int k = 1; k < S && row.every_state != nullptr; ++k) {
        L::store(next[k], row.every_state + (k - 1) * hidden + at.unit, at.count);
      }
    }
    const V h = StateOfNext(row, 0, restart_state, at.unit, at.count, next[0]);
    L::store(h, row.next_h + at.unit, at.count);
    round_operand(at, h, row.rounded);
    for (int k = 1; k < S; ++k) {
      L::store(StateOfNext(row, k, restart_state, at.unit, at.count, next[k]),
               row.next_others + (k - 1) * state + at.unit, at.count);
    }
  }

  HWY_INLINE void single_phase(const At& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], next[S], save[N];
    load_state(at, prev);
    Cell::forward(wx, rh, prev, next, save);
    finish(at, prev, next, save);
  }

  HWY_INLINE void first_phase(const At& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], save[N], operand;
    load_state(at, prev);
    Cell::forward_first(wx, rh, prev, operand, save);
    L::store(operand, at.row.operand + at.unit, at.count);
    round_operand(at, operand, at.row.rounded_operand);
    for (int i = 0; i < Cell::first_gates; ++i) L::store(save[i], at.row.between + i * hidden + at.unit, at.count);
  }

  HWY_INLINE void second_phase(const At& at, const V (&wx)[G], const V (&rh)[G]) const {
    V prev[S], next[S], save[N];
    load_state(at, prev);
    for (int i = 0; i < Cell::first_gates; ++i) save[i] = L::load(at.row.between + i * hidden + at.unit, at.count);
    Cell::forward_second(wx, rh, prev, next, save);
    finish(at, prev, next, save);
  }
};
