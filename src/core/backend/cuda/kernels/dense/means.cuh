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

  /// The same, but a lane gets only a share of the whole: lanes with bit `from` the second one.
  template <int from, int to, bool kEven>
  __device__ __forceinline__ Share join_shares() const {
    Share own;
    if constexpr (shares == 1) {
      own = *this;
      own.template join_lanes<from, to, kEven>();
    } else {
      const bool second = (threadIdx.x & from) != 0;
      Share other;
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

  /// Writes the means of exchange `kExchange` to the tape of a row and step: those for which writes(i) holds.
  template <int kExchange, class Writes>
  __device__ __forceinline__ void keep(char* tape, const Writes& writes) const {
    constexpr int first = Exchanges<Rule, false>::means_before(kExchange);
    float* const to = (float*)tape + first;
#pragma unroll
    for (int i = 0; i < floats; ++i) {
      if (writes(i)) to[i] = mean(i);
    }
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

/// Joins the parts of all threads of a block whose lanes are alike modulo `columns`. A warp has `units` units, one
/// after the other. All threads call this together. Exchange `number` of the block writes where nobody reads any more:
/// all threads have met in the exchange before it.
template <bool kBackwardPass, int warps, int columns, int units, int M, int N>
PENSTOCK_DEVICE void JoinBlock(PartOfUnits<M, N>& part, int& number) {
  using Share = typename PartOfUnits<M, N>::Share;
  constexpr bool even = kHead % units == 0;
  Share share = part.template join_shares<columns, 32, even>();
  if constexpr (warps > 1) {
    // Lanes have the columns, then the shares, then some of the warps: four of them cost less than a further shuffle.
    constexpr int pieces = Share::pieces, different = columns * PartOfUnits<M, N>::shares;
    constexpr int most = 32 / different, wanted = PowerOfTwoFrom((warps + 3) / 4);
    constexpr int readers = wanted < most ? wanted : most;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    uint4* const parts = PartsOfWarps<Rule, kBackwardPass, warps, columns>(number++) + lane % different;
    if (lane < different) {
#pragma unroll
      for (int q = 0; q < pieces; ++q) parts[(warp * pieces + q) * different] = share.piece(q);
    }
    __syncthreads();
    share = Share::none();
#pragma unroll
    for (int first = 0; first < warps; first += readers) {
      const int from = first + lane / different % readers;
      if (warps % readers != 0 && from >= warps) continue;
      Share other;
      other.count = even ? (float)units : (float)UnitsInHead(from * units, units);
#pragma unroll
      for (int q = 0; q < pieces; ++q) other.set_piece(q, parts[(from * pieces + q) * different]);
      if (first == 0) {
        share = other;
      } else {
        share.join(other);
      }
    }
    share.template join_lanes<different, different * readers, even && warps % readers == 0>();
  }
  part = PartOfUnits<M, N>::template of_shares<columns>(share);
}

/// Means of a step that the forward pass left on the tape. The mean over one unit is the unit, as the tape has it: what
/// halves differ from those of the forward pass would be divided by the root of a variance of 0.
struct TapedMeans {
  const char* means[kValues];  // of the row of each value of a thread

  template <int kExchange, int M, int N, int K>
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
