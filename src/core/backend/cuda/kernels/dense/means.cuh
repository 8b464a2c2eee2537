// Means over the units of a head, which threads compute together (custom/cuda_text.h): what an exchange carries, how
// sums of parts of the units are joined, and the exchange inside a thread block.
//
// A mean of squares is that of what x differs from its mean. Each part has the sum of its own squares, and joining two
// parts adds what their means differ (Chan et al. 1979): one exchange makes both means, and no digits are lost where
// the units of a head are much alike.
//
// Constants: kHead, kValues.

#include "backend/cuda/kernels/dense/values.cuh"

/// Sums over `count` units: of N values, and of the squares of what all but the first M of them differ from their
/// means.
template <int M, int N>
struct PartOfUnits {
  static constexpr int squares = N - M, floats = N + squares, pieces = (floats + 3) / 4;
  /// Lanes that join parts of several whole pieces halve the work: each has one of two shares of the values.
  static constexpr int shares = (squares == 0 || M == 0) && floats % 8 == 0 ? 2 : 1;
  using Share = PartOfUnits<M / shares, N / shares>;
  /// Lanes can have half of the values each.
  static constexpr bool has_halves = (M == 0 || M == N) && N % 2 == 0;
  using Half = PartOfUnits<M / 2, N / 2>;
  float count, sum[N], square[squares > 0 ? squares : 1];

  /// Sums of a thread's values first .. first + values - 1 for which exists(i) holds.
  template <class Exists>
  PENSTOCK_DEVICE PartOfUnits of(const Values (&x)[N], int first, int values, const Exists& exists) {
    PartOfUnits part;
    part.count = 0.0f;
#pragma unroll
    for (int i = first; i < first + values; ++i) part.count += exists(i) ? 1.0f : 0.0f;
    const float inverse = part.count > 0.0f ? 1.0f / part.count : 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      part.sum[n] = 0.0f;
#pragma unroll
      for (int i = first; i < first + values; ++i) part.sum[n] += exists(i) ? x[n].of[i].value : 0.0f;
      if (n < M) continue;
      float& square = part.square[n < M ? 0 : n - M];
      square = 0.0f;
#pragma unroll
      for (int i = first; i < first + values; ++i) {
        const float apart = exists(i) ? x[n].of[i].value - part.sum[n] * inverse : 0.0f;
        square = __fmaf_rn(apart, apart, square);
      }
    }
    return part;
  }

  /// Adds the units of another part. Either of two parts gets the same bits from the other. `kEven`: both have as many.
  template <bool kEven = false>
  __device__ __forceinline__ void join(const PartOfUnits& other) {
    const float product = count * other.count * (count + other.count);
    const float weight = kEven ? 0.5f / count : product > 0.0f ? 1.0f / product : 0.0f;
#pragma unroll
    for (int k = 0; k < squares; ++k) {
      const float a = sum[M + k], b = other.sum[M + k];
      const float apart = kEven ? a - b : __fmul_rn(a, other.count) - __fmul_rn(b, count);
      square[k] = __fmaf_rn(apart * apart, weight, square[k] + other.square[k]);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += other.sum[n];
    count += other.count;
  }

  /// Joins the parts of the lanes whose numbers differ in the bits `from` to below `to`; all of them get the whole.
  /// `kEven`: all have as many units.
  template <int from, int to, bool kEven>
  __device__ __forceinline__ void join_lanes() {
#pragma unroll
    for (int apart = from; apart < to; apart *= 2) {
      PartOfUnits other;
      other.count = kEven || squares == 0 ? count : __shfl_xor_sync(0xffffffffu, count, apart);
#pragma unroll
      for (int n = 0; n < N; ++n) other.sum[n] = __shfl_xor_sync(0xffffffffu, sum[n], apart);
#pragma unroll
      for (int k = 0; k < squares; ++k) other.square[k] = __shfl_xor_sync(0xffffffffu, square[k], apart);
      join<kEven>(other);
    }
  }

  /// Returns the first or the second half of the values.
  __device__ __forceinline__ Half half(bool second) const {
    Half own;
    own.count = count;
#pragma unroll
    for (int n = 0; n < N / 2; ++n) own.sum[n] = second ? sum[n + N / 2] : sum[n];
#pragma unroll
    for (int k = 0; k < squares / 2; ++k) own.square[k] = second ? square[k + squares / 2] : square[k];
    return own;
  }

  /// Joins the parts of two lanes that differ in bit `from`; each gets half of the values, the lane with the bit the
  /// second half.
  template <int from, bool kEven>
  __device__ __forceinline__ Half join_half() const {
    const bool second = (threadIdx.x & from) != 0;
    Half own, other;
    own.count = count;
    other.count = kEven || squares == 0 ? count : __shfl_xor_sync(0xffffffffu, count, from);
    const auto halve = [&](float first_half, float second_half, float& kept, float& got) {
      kept = second ? second_half : first_half;
      got = __shfl_xor_sync(0xffffffffu, second ? first_half : second_half, from);
    };
#pragma unroll
    for (int n = 0; n < N / 2; ++n) halve(sum[n], sum[n + N / 2], own.sum[n], other.sum[n]);
#pragma unroll
    for (int k = 0; k < squares / 2; ++k) halve(square[k], square[k + squares / 2], own.square[k], other.square[k]);
    own.template join<kEven>(other);
    return own;
  }

  /// As join_lanes(), but a lane gets only a share of the whole: lanes with bit `from` the second one.
  template <int from, int to, bool kEven>
  __device__ __forceinline__ Share join_shares() const {
    Share own;
    if constexpr (shares == 1) {
      own = *this;
      own.template join_lanes<from, to, kEven>();
    } else {
      own = join_half<from, kEven>();
      own.template join_lanes<2 * from, to, kEven>();
    }
    return own;
  }

  /// Returns the whole, which two lanes that differ in bit `from` have the shares of.
  template <int from>
  PENSTOCK_DEVICE PartOfUnits of_shares(const Share& own) {
    PartOfUnits whole;
    if constexpr (shares == 1) {
      whole = own;
    } else {
      const bool second = (threadIdx.x & from) != 0;
      whole.count = own.count;
      const auto join_halves = [&](float value, float& first_half, float& second_half) {
        const float other = __shfl_xor_sync(0xffffffffu, value, from);
        first_half = second ? other : value, second_half = second ? value : other;
      };
#pragma unroll
      for (int n = 0; n < N / 2; ++n) join_halves(own.sum[n], whole.sum[n], whole.sum[n + N / 2]);
#pragma unroll
      for (int k = 0; k < squares / 2; ++k) {
        join_halves(own.square[k], whole.square[k], whole.square[k + squares / 2]);
      }
    }
    return whole;
  }

  /// Returns the whole of two shares, or of one.
  PENSTOCK_DEVICE PartOfUnits of_both(const Share& first, const Share& second) {
    PartOfUnits whole;
    whole.count = first.count;
#pragma unroll
    for (int n = 0; n < N; ++n)
      whole.sum[n] = n < N / shares ? first.sum[n % (N / shares)] : second.sum[n % (N / shares)];
#pragma unroll
    for (int k = 0; k < squares; ++k) {
      constexpr int each = squares / shares > 0 ? squares / shares : 1;
      whole.square[k] = k < each ? first.square[k % each] : second.square[k % each];
    }
    return whole;
  }

  /// The floats of the part as pieces of 16 bytes, without the count.
  __device__ __forceinline__ uint4 piece(int q) const {
    const auto word = [&](int i) {
      const int at = 4 * q + i;
      return at >= floats ? 0u : __float_as_uint(at < N ? sum[at < N ? at : 0] : square[at < N ? 0 : at - N]);
    };
    return make_uint4(word(0), word(1), word(2), word(3));
  }
  __device__ __forceinline__ void set_piece(int q, const uint4& v) {
    const auto set = [&](int i, unsigned word) {
      const int at = 4 * q + i;
      if (at < N) sum[at < N ? at : 0] = __uint_as_float(word);
      if (at >= N && at < floats) square[at >= N && at < floats ? at - N : 0] = __uint_as_float(word);
    };
    set(0, v.x), set(1, v.y), set(2, v.z), set(3, v.w);
  }
  PENSTOCK_DEVICE PartOfUnits none() {
    PartOfUnits part = {};
    return part;
  }

  /// Mean i of the exchange, of all units of the head.
  __device__ __forceinline__ float mean(int i) const {
    return (i < N ? sum[i < N ? i : 0] : square[i < N ? 0 : i - N]) * (1.0f / kHead);
  }

  /// Writes the means to a thread's values first .. first + values - 1.
  template <int K>
  __device__ __forceinline__ void put(Values (&x)[N], Values (&squares_of_x)[K], int first, int values) const {
#pragma unroll
    for (int i = first; i < first + values; ++i) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n].of[i] = Real(mean(n));
#pragma unroll
      for (int k = 0; k < squares; ++k) squares_of_x[k].of[i] = Real(mean(N + k));
    }
  }
};

/// Joins parts pair by pair, and the pairs in turn: the first part gets the whole. `kEven`: all have as many units.
template <bool kEven, int count, class Part>
PENSTOCK_DEVICE void JoinAll(Part (&parts)[count]) {
#pragma unroll
  for (int apart = 1; apart < count; apart *= 2) {
#pragma unroll
    for (int i = 0; i + apart < count; i += 2 * apart) {
      if (kEven && i + 2 * apart <= count) {
        parts[i].template join<true>(parts[i + apart]);
      } else {
        parts[i].join(parts[i + apart]);
      }
    }
  }
}

/// Floats that each of `kThreads` threads keeps of the means of the exchanges before one.
template <int kThreads>
PENSTOCK_DEVICE constexpr int KeptBefore(int exchange) {
  int sum = 0;
  for (int i = 0; i < exchange; ++i) sum += (Exchanges<Rule, false>::of.means[i] + kThreads - 1) / kThreads;
  return sum;
}

/// Means of a step on their way to the tape: each of `kThreads` threads has some of a row's. They are written when
/// nobody waits any more, since the barriers that exchanges wait at also wait for stores to memory.
template <int kThreads>
struct KeptMeans {
  using All = Exchanges<Rule, false>;
  static constexpr int count = KeptBefore<kThreads>(All::of.count);
  float of[count > 0 ? count : 1];

  template <int kExchange, class Part>
  __device__ __forceinline__ void take(const Part& part, int number) {
    constexpr int before = KeptBefore<kThreads>(kExchange);
#pragma unroll
    for (int first = 0; first < Part::floats; first += kThreads) {
      float& value = of[before + first / kThreads];
      value = part.mean(first);
#pragma unroll
      for (int i = 1; i < kThreads && first + i < Part::floats; ++i) value = number == i ? part.mean(first + i) : value;
    }
  }
  /// Writes them, as thread `number`, to the tape of a row and step.
  template <int kExchange = 0>
  __device__ __forceinline__ void store(char* tape, int number) const {
    if constexpr (kExchange < All::of.count) {
      constexpr int before = KeptBefore<kThreads>(kExchange), floats = All::means_before(kExchange + 1);
#pragma unroll
      for (int first = All::means_before(kExchange), i = before; first < floats; first += kThreads, ++i) {
        if (number < kThreads && first + number < floats) ((float*)tape)[first + number] = of[i];
      }
      store<kExchange + 1>(tape, number);
    }
  }
};

/// Returns how many of `units` units that begin at `first` are the head's.
PENSTOCK_DEVICE constexpr int UnitsInHead(int first, int units) {
  return first >= kHead ? 0 : kHead - first < units ? kHead - first : units;
}

PENSTOCK_DEVICE constexpr int PowerOfTwoFrom(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

/// Memory for the parts of warps; two exchanges take turns.
template <class Cell, bool kBackwardPass, int warps, int columns>
PENSTOCK_DEVICE uint4* PartsOfWarps(int number) {
  constexpr int pieces = warps * columns * Exchanges<Cell, kBackwardPass>::most_pieces();
  __shared__ uint4 parts[2 * pieces];
  return parts + (number & 1) * pieces;
}

template <int from, bool kEven, int M, int N>
PENSTOCK_DEVICE PartOfUnits<M, N> JoinRest(PartOfUnits<M, N> part) {
  part.template join_lanes<from, 32, kEven>();
  return part;
}

/// Joins the parts of lanes whose numbers differ in the bits `from` to below 32. At each bit, a lane keeps half of the
/// values while their number is even: of `halved` bits, the lane with the bit keeps the second half.
template <int from, bool kEven, int M, int N>
PENSTOCK_DEVICE auto JoinWarp(PartOfUnits<M, N> part) {
  if constexpr (from == 32) {
    return part;
  } else if constexpr (PartOfUnits<M, N>::has_halves) {
    return JoinWarp<2 * from, kEven>(part.template join_half<from, kEven>());
  } else {
    return JoinRest<from, kEven>(part);
  }
}

/// The same, of a lane that knows the part of the one that differs in bit `from`.
template <int from, bool kEven, int M, int N>
PENSTOCK_DEVICE auto JoinWarp(PartOfUnits<M, N> part, const PartOfUnits<M, N>& twin) {
  if constexpr (PartOfUnits<M, N>::has_halves) {
    auto own = part.half((threadIdx.x & from) != 0);
    own.template join<kEven>(twin.half((threadIdx.x & from) != 0));
    return JoinWarp<2 * from, kEven>(own);
  } else {
    part.template join<kEven>(twin);
    return JoinRest<2 * from, kEven>(part);
  }
}

/// Joins the parts of all threads of a block whose lanes are alike modulo `columns`. A warp has `units` units, one
/// after the other. All threads call this together. Exchange `number` of the block writes where nobody reads any more:
/// all threads have met in the exchange before it.
template <bool kBackwardPass, int warps, int columns, int units, bool kTwin = false, int M, int N>
PENSTOCK_DEVICE void JoinBlock(PartOfUnits<M, N>& part, int& number, const PartOfUnits<M, N>* twin = nullptr) {
  using Part = PartOfUnits<M, N>;
  using Share = typename Part::Share;
  constexpr bool even = kHead % units == 0;
  if constexpr (warps == 1) {
    part = Part::template of_shares<columns>(part.template join_shares<columns, 32, even>());
  } else {
    constexpr int pieces = Share::pieces, shares = Part::shares, different = columns * shares, of_share = N / shares;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    uint4* const parts = PartsOfWarps<Rule, kBackwardPass, warps, columns>(number++);
    {
      const auto own = [&] {
        if constexpr (kTwin) {
          return JoinWarp<columns, even>(part, *twin);
        } else {
          return JoinWarp<columns, even>(part);
        }
      }();
      constexpr int left = sizeof(own.sum) / 4, halves = N / left;
      // The first of this lane's values: halves of halves.
      int first = 0;
#pragma unroll
      for (int bit = 1; bit < halves; bit *= 2) first += lane & (columns * bit) ? N / 2 / bit : 0;
      if (lane < columns * halves) {
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const int n = first + i, at = n % of_share, of = lane % columns + n / of_share * columns;
          const auto place = [&](int value) {
            return (float*)(parts + (warp * pieces + value / 4) * different + of) + value % 4;
          };
          *place(at) = own.sum[i];
          if (i >= M && Part::squares > 0) *place(of_share + at - M) = own.square[i < M ? 0 : i - M];
        }
      }
    }
    __syncthreads();
    if constexpr (warps <= 4) {
      // Each lane reads all: that takes less time than a further shuffle.
      Share all[shares][warps];
#pragma unroll
      for (int s = 0; s < shares; ++s) {
#pragma unroll
        for (int w = 0; w < warps; ++w) {
          all[s][w].count = even ? (float)units : (float)UnitsInHead(w * units, units);
#pragma unroll
          for (int q = 0; q < pieces; ++q) {
            all[s][w].set_piece(q, parts[(w * pieces + q) * different + lane % columns + s * columns]);
          }
        }
        JoinAll<even>(all[s]);
      }
      part = Part::of_both(all[0][0], all[shares - 1][0]);
    } else {
      // Lanes have the columns, then the shares, then some of the warps: four of them cost less than a further shuffle.
      constexpr int most = 32 / different, wanted = PowerOfTwoFrom((warps + 3) / 4);
      constexpr int readers = wanted < most ? wanted : most, rounds = (warps + readers - 1) / readers;
      Share all[rounds];
#pragma unroll
      for (int i = 0; i < rounds; ++i) {
        const int from = i * readers + lane / different % readers;
        all[i] = Share::none();
        if (warps % readers != 0 && from >= warps) continue;
        all[i].count = even ? (float)units : (float)UnitsInHead(from * units, units);
#pragma unroll
        for (int q = 0; q < pieces; ++q) all[i].set_piece(q, parts[(from * pieces + q) * different + lane % different]);
      }
      JoinAll<even && warps % readers == 0>(all);
      all[0].template join_lanes<different, different * readers, even && warps % readers == 0>();
      part = Part::template of_shares<columns>(all[0]);
    }
  }
}

/// Means of a step that the forward pass left on the tape. The mean over one unit is the unit, as the tape has it: what
/// halves differ from those of the forward pass would be divided by the root of a variance of 0.
struct TapedMeans {
  const char* means[kValues];  // of the row of each value of a thread

  template <int kExchange, int M, bool kProducts = false, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) const {
    constexpr int first = Exchanges<Rule, false>::means_before(kExchange);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float* const from = (const float*)means[i] + first;
#pragma unroll
      for (int n = 0; n < N && kHead > 1; ++n) x[n].of[i] = Real(from[n]);
#pragma unroll
      for (int k = 0; k < N - M; ++k) square[k].of[i] = Real(kHead > 1 ? from[N + k] : 0.0f);
    }
  }
};
