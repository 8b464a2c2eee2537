// All steps of one sequence through a dense cell of one phase. A step waits for the one before, so only its arithmetic
// should take time. The panels of W and R hold a block of units each, row after row. States are kept in padded vectors:
// a masked store cannot be read again before it has reached the cache.

/// Vectors of the units of a layer: of half as many lanes if those hold all of eight units.
template <class Run>
HWY_INLINE auto WithRowVectors([[maybe_unused]] Index hidden, const Run& run) {
#if HWY_TARGET == HWY_AVX3
  if (hidden <= NarrowSimd::lanes) return run(std::type_identity<NarrowSimd>());
#endif
  return run(std::type_identity<Simd>());
}

/// Vectors for which Sigmoid() and Tanh() bound their results: to bound the argument before, as Simd does, takes longer
/// than to choose a result in the end, and a step waits for both functions.
template <class V>
struct BoundLater {
  V v;

  HWY_INLINE BoundLater() = default;
  HWY_INLINE BoundLater(V of) : v(of) {}  // NOLINT(google-explicit-constructor): as SimdOf
  HWY_INLINE explicit BoundLater(float x) : v(x) {}

  friend HWY_INLINE BoundLater operator+(BoundLater a, BoundLater b) { return a.v + b.v; }
  friend HWY_INLINE BoundLater operator-(BoundLater a, BoundLater b) { return a.v - b.v; }
  friend HWY_INLINE BoundLater operator*(BoundLater a, BoundLater b) { return a.v * b.v; }
  friend HWY_INLINE BoundLater MulAdd(BoundLater a, BoundLater b, BoundLater c) { return MulAdd(a.v, b.v, c.v); }
  friend HWY_INLINE BoundLater Quotient(BoundLater a, BoundLater b) { return Quotient(a.v, b.v); }
  friend HWY_INLINE BoundLater NearlyMinusLogs(BoundLater x, BoundLater n) { return NearlyMinusLogs(x.v, n.v); }
  friend HWY_INLINE BoundLater Clamp(BoundLater x, BoundLater, BoundLater) { return x; }
  template <int times>
  friend HWY_INLINE void PowerOfTwo(BoundLater x, BoundLater& n, BoundLater& scale) {
    PowerOfTwo<times>(x.v, n.v, scale.v);
  }
  /// Beyond the bound, `least` or 1 by the sign of x; otherwise `inside`, also of a NaN.
  static HWY_INLINE BoundLater choose(V x, float bound, float least, V inside) {
    const typename V::Tag d;
    const auto outside = hn::IfThenElse(hn::Lt(x.raw, hn::Zero(d)), hn::Set(d, least), hn::Set(d, 1.0f));
    return V(hn::IfThenElse(hn::Gt(hn::Abs(x.raw), hn::Set(d, bound)), outside, inside.raw));
  }
};

template <class V>
HWY_INLINE BoundLater<V> Sigmoid(BoundLater<V> x) {
  return BoundLater<V>::choose(x.v, 87.3f, 0.0f, Sigmoid<BoundLater<V>>(x).v);
}
template <class V>
HWY_INLINE BoundLater<V> Tanh(BoundLater<V> x) {
  return BoundLater<V>::choose(x.v, 9.02f, -1.0f, Tanh<BoundLater<V>>(x).v);
}

/// The vectors of a layer's last units: half ones, if they hold all that the whole ones leave.
#if HWY_TARGET == HWY_AVX3
using TailSimd = NarrowSimd;
#else
using TailSimd = Simd;
#endif

template <class V>
constexpr Index Padded(Index hidden) {
  constexpr Index lanes = std::min(V::lanes, TailSimd::lanes);
  return (hidden + lanes - 1) / lanes * lanes;
}

/// The blocks of a layer: of two vectors, whose sums of three or four gates keep two multipliers of four cycles'
/// latency busy, then of one, then of a half one. Narrow vectors are one block.
template <class V>
struct RowBlocks {
  static constexpr Index units = V::lanes == Simd::lanes ? 2 * V::lanes : V::lanes;
  Index padded, whole, count;  // whole: of two vectors

  HWY_INLINE explicit RowBlocks(Index hidden)
      : padded(Padded<V>(hidden)),
        whole(padded / units),
        count(whole + (padded % units >= V::lanes ? 1 : 0) + (padded % V::lanes > 0 ? 1 : 0)) {}
  /// The first unit of block i, or the end.
  HWY_INLINE Index first(Index i) const {
    return i <= whole ? i * units : i == count ? padded : padded - TailSimd::lanes;
  }
  /// Calls visit(std::type_identity<vector>, std::integral_constant<int, vectors>, first unit) for block i.
  template <class Visit>
  HWY_INLINE void visit(Index i, const Visit& visit) const {
    const Index unit = first(i), end = first(i + 1);
    if constexpr (units > V::lanes) {
      if (end - unit == units) return visit(std::type_identity<V>(), std::integral_constant<int, 2>(), unit);
      if constexpr (V::lanes > TailSimd::lanes) {
        if (end - unit < V::lanes) return visit(std::type_identity<TailSimd>(), std::integral_constant<int, 1>(), unit);
      }
    }
    visit(std::type_identity<V>(), std::integral_constant<int, 1>(), unit);
  }
};

Index PaddedUnits(Index hidden) {
  return WithRowVectors(hidden, [=](auto tag) HWY_ATTR { return Padded<typename decltype(tag)::type>(hidden); });
}

/// Packs the units [first, end) of a block.
[[maybe_unused, gnu::cold]] HWY_NOINLINE float* PackBlock(Index gates, Index inner, Index hidden, Index first,
                                                          Index end, const float* weight, const float* bias,
                                                          float* to) {
  for (Index k = -1; k < inner; ++k) {
    for (Index gate = 0; gate < gates; ++gate) {
      for (Index unit = first; unit < end; ++unit) {
        const Index row = gate * hidden + unit;
        const bool is_there = unit < hidden && (k >= 0 || bias != nullptr);
        *to++ = !is_there ? 0.0f : k < 0 ? bias[row] : weight[row * inner + k];
      }
    }
  }
  return to;
}

template <int gates>
void PackRow(Index inner, Index hidden, const float* weight, const float* bias, float* to) {
  WithRowVectors(hidden, [&](auto tag) HWY_ATTR {
    const RowBlocks<typename decltype(tag)::type> blocks(hidden);
    for (Index i = 0; i < blocks.count; ++i) {
      to = PackBlock(gates, inner, hidden, blocks.first(i), blocks.first(i + 1), weight, bias, to);
    }
  });
}

/// Calls body(std::integral_constant<int, i>) for i from 0 to n - 1. Sums in arrays stay in registers, which they do
/// not in loops that the compiler unrolls late.
template <int n, int i = 0, class Body>
HWY_INLINE void Unrolled(const Body& body) {
  if constexpr (i < n) {
    body(std::integral_constant<int, i>());
    Unrolled<n, i + 1>(body);
  }
}

/// sums += a[k] times the row of a panel.
template <class V, int vectors>
HWY_INLINE void AddRow(float a, const float* panel, V (&sums)[vectors]) {
  const V x(a);
  Unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = MulAdd(x, SimdLanes<V>::load(panel + v * V::lanes), sums[v]); });
}

/// sums = bias + a [inner] times the panel behind it. Few sums are computed in two halves, of the even and the odd
/// values, to keep the multipliers busy.
template <class V, int vectors>
HWY_INLINE void RowProduct(const float* a, Index inner, const float* panel, V (&sums)[vectors]) {
  constexpr Index row = vectors * V::lanes;
  Unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = SimdLanes<V>::load(panel + v * V::lanes); });
  panel += row;
  if constexpr (vectors < 8) {
    V odd[vectors];
    Unrolled<vectors>([&](auto v) HWY_ATTR { odd[v] = V(0.0f); });
    Index k = 0;
    for (; k + 2 <= inner; k += 2, panel += 2 * row) {
      AddRow(a[k], panel, sums);
      AddRow(a[k + 1], panel + row, odd);
    }
    if (k < inner) AddRow(a[k], panel, sums);
    Unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = sums[v] + odd[v]; });
  } else {
    for (Index k = 0; k < inner; ++k, panel += row) AddRow(a[k], panel, sums);
  }
}

/// Units [first, first + width * lanes) of step t. `others`: the states but h, padded.
template <class V, class Cell, int width>
HWY_NOINLINE void RowBlock(const RowSteps& job, Index t, Index first, const float* h, float* next_h,
                           float* const* others) {
  using L = SimdLanes<V>;
  constexpr int G = Cell::gates, S = Cell::states, vectors = G * width;
  const Index hidden = job.hidden;
  V of_input[vectors], of_state[vectors];
  RowProduct(job.x + t * job.x_step, job.input, job.of_input + first * G * (job.input + 1), of_input);
  RowProduct(h, hidden, job.of_state + first * G * (hidden + 1), of_state);
  Unrolled<width>([&](auto w) HWY_ATTR {
    const Index unit = first + w * L::lanes;
    BoundLater<V> wx[G], rh[G], before[S], after[S], saved[Cell::saved];
    Unrolled<G>([&](auto g) HWY_ATTR { wx[g] = of_input[g * width + w], rh[g] = of_state[g * width + w]; });
    before[0] = L::load(h + unit);
    Unrolled<S - 1>([&](auto k) HWY_ATTR { before[k + 1] = L::load(others[k] + unit); });
    Cell::forward(wx, rh, before, after, saved);
    L::store(after[0].v, next_h + unit);
    Unrolled<S - 1>([&](auto k) HWY_ATTR { L::store(after[k + 1].v, others[k] + unit); });
    if (job.head == nullptr) {
      L::store(after[0].v, job.y + t * job.y_step + unit, std::min<Index>(L::lanes, hidden - unit));
    }
  });
}

/// Values of padded h, the last ones as they were stored: another vector could be loaded only from the cache.
template <class V>
HWY_INLINE V LoadUnits(const float* h, [[maybe_unused]] Index count) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (V::lanes > TailSimd::lanes) {
    if (count <= TailSimd::lanes) return hn::ZeroExtendVector(typename V::Tag(), SimdLanes<TailSimd>::load(h).raw);
  }
#endif
  return SimdLanes<V>::load(h);
}

/// The one output of a layer's end, in the order of a product with one column (MultiplyColumn).
template <class V>
HWY_NOINLINE float HeadOf(const RowSteps& job, const float* h) {
  using L = SimdLanes<V>;
  V sum(0.0f);
  for (Index unit = 0; unit < job.hidden; unit += L::lanes) {
    const Index count = std::min<Index>(L::lanes, job.hidden - unit);
    sum = MulAdd(LoadUnits<V>(h + unit, count), L::load(job.head + unit, count), sum);
  }
  return L::sum(sum) + job.head_bias;
}

/// Copies [hidden], or zeros if it is null, to [room]: hidden, or padded.
template <class V>
HWY_NOINLINE void CopyRow(Index hidden, const float* from, Index room, float* to) {
  for (Index unit = 0; unit < hidden; unit += V::lanes) {
    const Index count = std::min<Index>(V::lanes, hidden - unit);
    const V value = from == nullptr ? V(0.0f) : SimdLanes<V>::load(from + unit, count);
    SimdLanes<V>::store(value, to + unit, std::min<Index>(V::lanes, room - unit));
  }
}

template <class V, class Cell>
HWY_NOINLINE void RunSteps(RowSteps& job) {
  const RowBlocks<V> blocks(job.hidden);
  float* states[Cell::states];
  Unrolled<Cell::states>([&](auto k) HWY_ATTR {
    states[k] = job.in_place ? job.last[k] : job.spare + (1 + k) * blocks.padded;
    if (!job.in_place) CopyRow<V>(job.hidden, job.first[k], blocks.padded, states[k]);
  });
  float* const h = states[0];
  const Index last = blocks.count - 1;
  for (Index t = 0; t < job.steps; ++t, job.backwards = !job.backwards) {
    for (Index i = 0; i <= last; ++i) {
      // All blocks read h, so only the last may write it. What the others wrote is copied while that one computes.
      float* const next_h = i == last ? h : job.spare;
      blocks.visit(job.backwards ? last - i : i, [&](auto tag, auto width, Index first) HWY_ATTR {
        RowBlock<typename decltype(tag)::type, Cell, decltype(width)::value>(job, t, first, h, next_h, states + 1);
      });
    }
    const Index end = blocks.first(job.backwards ? blocks.count : last);
    Index unit = job.backwards ? blocks.first(1) : 0;
    for (; unit + V::lanes <= end; unit += V::lanes)
      SimdLanes<V>::store(SimdLanes<V>::load(job.spare + unit), h + unit);
    if (unit < end) SimdLanes<TailSimd>::store(SimdLanes<TailSimd>::load(job.spare + unit), h + unit);
    if (job.head != nullptr) job.y[t] = HeadOf<V>(job, h);
  }
  Unrolled<Cell::states>([&](auto k) HWY_ATTR {
    if (job.last[k] != nullptr && !job.in_place) CopyRow<V>(job.hidden, states[k], job.hidden, job.last[k]);
  });
}

template <class Cell>
void RunRow(RowSteps& job) {
  WithRowVectors(job.hidden, [&](auto tag) HWY_ATTR {
    using V = typename decltype(tag)::type;
    const RowBlocks<V> blocks(job.hidden);
    if (job.steps != 1 || !job.in_place || blocks.count > 1) return RunSteps<V, Cell>(job);
    // One step of one block: without the loop, and without copies of states.
    blocks.visit(0, [&](auto vector, auto width, Index) HWY_ATTR {
      using Vector = typename decltype(vector)::type;
      RowBlock<Vector, Cell, decltype(width)::value>(job, 0, 0, job.last[0], job.last[0], job.last + 1);
    });
    if (job.head != nullptr) *job.y = HeadOf<V>(job, job.last[0]);
  });
}
