// Tiles of the forward engine of dense cells over weights that lie where the caller has them, for calls of so few steps
// and rows that packing would take longer than what it saves. The lanes of a product run over its inputs, and a vector
// of units is what the sums of as many rows of the matrix come to, so that each weight is read once, and in order.

#if HWY_TARGET != HWY_SCALAR

/// Lane i of what is returned is the sum of the lanes of row i.
HWY_INLINE Simd SumsOfRows(const Simd (&row)[Simd::lanes]) {
  const Simd::Tag d;
  const hn::Repartition<std::uint64_t, Simd::Tag> pairs;
  constexpr Index blocks = Simd::lanes / 4;
  static_assert(blocks == 1 || blocks == 2 || blocks == 4);
  Simd part[blocks];  // [q]: in every block of 128 bits what rows 4q to 4q + 3 sum up to there
  for (Index q = 0; q < blocks; ++q) {
    const auto two = [&](Simd a, Simd b) HWY_ATTR {
      return Simd(hn::InterleaveLower(d, a.raw, b.raw)) + Simd(hn::InterleaveUpper(d, a.raw, b.raw));
    };
    const auto low = hn::BitCast(pairs, two(row[4 * q], row[4 * q + 1]).raw);
    const auto high = hn::BitCast(pairs, two(row[4 * q + 2], row[4 * q + 3]).raw);
    part[q] = Simd(hn::BitCast(d, hn::InterleaveLower(pairs, low, high))) +
              Simd(hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  }
  const auto halves = [&](Simd a, Simd b) HWY_ATTR {
    return Simd(hn::ConcatLowerLower(d, b.raw, a.raw)) + Simd(hn::ConcatUpperUpper(d, b.raw, a.raw));
  };
  if constexpr (blocks == 1) {
    return part[0];
  } else if constexpr (blocks == 2) {
    return halves(part[0], part[1]);
  } else {
    const Simd even = halves(part[0], part[2]), odd = halves(part[1], part[3]);
    return Simd(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd.raw), even.raw)) +
           Simd(hn::OddEvenBlocks(odd.raw, hn::SwapAdjacentBlocks(even.raw)));
  }
}

#else

HWY_INLINE Simd SumsOfRows(const Simd (&row)[1]) { return row[0]; }

#endif  // HWY_TARGET

HWY_INLINE double SumsOfRows(const double (&row)[1]) { return row[0]; }

/// A vector of units: lane i is a [k_count] times row i of a matrix whose rows follow each other; rows from `count` on
/// do not exist.
template <class Real>
HWY_INLINE typename Lanes<Real>::V TimesRows(const Real* a, const Real* rows, Index k_count, Index count) {
  using L = Lanes<Real>;
  using V = typename L::V;
  // One pointer serves three rows: a pointer for each would not fit the registers.
  constexpr Index thirds = (L::lanes + 2) / 3;
  const Real* base[thirds];
  for (Index j = 0; j < thirds; ++j) base[j] = rows + std::min(3 * j, count - 1) * k_count;
  V sums[L::lanes];
  for (V& sum : sums) sum = V(0);
  const auto add = [&](auto whole, Index k, Index inputs) HWY_ATTR {
    const V x = L::load(a + k, inputs);
    for (Index i = 0; i < L::lanes; ++i) {
      if constexpr (decltype(whole)::value) {
        sums[i] = MulAdd(x, L::load(base[i / 3] + i % 3 * k_count + k, inputs), sums[i]);
      } else {
        sums[i] = MulAdd(x, L::load(rows + std::min(i, count - 1) * k_count + k, inputs), sums[i]);
      }
    }
  };
  const auto add_all = [&](auto whole) HWY_ATTR {
    Index k = 0;
    for (; k + L::lanes <= k_count; k += L::lanes) add(whole, k, L::lanes);
    if (k < k_count) add(whole, k, k_count - k);
  };
  if (count >= L::lanes) {
    add_all(std::true_type());
  } else {
    add_all(std::false_type());
  }
  return SumsOfRows(sums);
}

/// Returns the products for a vector of narrow heads' units from `unit` on: each unit multiplies its head's states by
/// its own row of weights [heads, gates, D, D].
template <class Real>
HWY_INLINE typename Lanes<Real>::V NarrowTimesRows(const Real* states, const Real* weights, Index gates, Index gate,
                                                   Index head_size, Index unit, Index count) {
  alignas(64) Real sums[Lanes<Real>::lanes] = {};
  for (Index i = 0; i < count; ++i) {
    const Index head = (unit + i) / head_size, of_head = (unit + i) % head_size;
    const Real* const row = weights + ((head * gates + gate) * head_size + of_head) * head_size;
    for (Index k = 0; k < head_size; ++k) sums[i] += states[head * head_size + k] * row[k];
  }
  return Lanes<Real>::load(sums);
}

/// Slots whose products with some rows of a matrix follow each other, while those rows are in the first-level cache.
constexpr Index kUnpackedSlots = 8;

/// A vector of units of some slots.
template <int gate_count, class Real>
HWY_NOINLINE void UnpackedTile(const DenseForward<Real>& job, const GateGroup<Real>& group,
                               const RowPlace<Real>* places, Index slot, Index slots, Index step, Index head,
                               Index first_unit) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const Index head_size = job.hidden / job.heads, count = std::min(L::lanes, head_size - first_unit);
  V of_input[kUnpackedSlots * gate_count], of_state[kUnpackedSlots * gate_count];
  V start_input[gate_count], start_state[gate_count];
  const Index first_bias = group.first_gate * job.hidden;
  LoadBias<Real, gate_count, 1>(job.bias_ih + first_bias, job.hidden, head_size, head, first_unit, start_input);
  LoadBias<Real, gate_count, 1>(job.bias_hh + first_bias, job.hidden, head_size, head, first_unit, start_state);
  for (int g = 0; g < gate_count; ++g) {
    const Index gate = group.first_gate + g;
    const Real* const input_rows = job.weight_ih + (gate * job.hidden + head * head_size + first_unit) * job.input;
    const bool narrow = job.mixed < head_size;
    const Real* const state_rows =
        narrow ? nullptr : job.weight_hh + ((head * group.gates + gate) * head_size + first_unit) * head_size;
    for (Index m = 0; m < slots; ++m) {
      const Real* const x = InputRow<Real>(job, slot + m, step);
      const Real* const h = group.operand + (slot + m) * job.hidden + head * head_size;
      of_input[m * gate_count + g] = start_input[g] + TimesRows(x, input_rows, job.input, count);
      of_state[m * gate_count + g] =
          start_state[g] + (narrow ? NarrowTimesRows(h, job.weight_hh, group.gates, gate, job.mixed, first_unit, count)
                                   : TimesRows(h, state_rows, head_size, count));
    }
  }
  group.compute_vector(job, {places + slot, head, first_unit}, static_cast<int>(slots), 1, of_input, of_state);
}

/// ForwardTiles() without panels.
template <int gate_count, int width, class Real>
void UnpackedTiles(const DenseForward<Real>& job, const GateGroup<Real>& group, const RowPlace<Real>* places,
                   const DensePart& part, Index slot_end, Index step) {
  constexpr Index lanes = Lanes<Real>::lanes, units = width * lanes;
  const Index head_size = job.hidden / job.heads, blocks_per_head = (head_size + units - 1) / units;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const Index head = block / blocks_per_head, begin = block % blocks_per_head * units;
    for (Index unit = begin; unit < std::min(begin + units, head_size); unit += lanes) {
      for (Index slot = part.slot_begin; slot < slot_end; slot += kUnpackedSlots) {
        UnpackedTile<gate_count>(job, group, places, slot, std::min(kUnpackedSlots, slot_end - slot), step, head, unit);
      }
    }
  }
}
