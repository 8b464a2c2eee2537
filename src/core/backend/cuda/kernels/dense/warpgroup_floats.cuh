// How warpgroups multiply floats: as halves, the terms of WarpgroupShape. Included by warpgroup_team.cuh.

template <class Of, int kBytesOf>
struct HalfOf {
  using Type = Of;
};
template <class Of>
struct HalfOf<Of, 4> {
  using Type = F16;
};
/// Type of the factors: the storage. For floats it is F16, whose mantissa is that of TF32; two of them hold 22 bits.
using Half = HalfOf<Storage, kBytes>::Type;

/// Units of an access of 16 bytes, and accesses to 8 units.
constexpr int kPieceUnits = 16 / kBytes, kPieces = 8 / kPieceUnits;

/// Backward: factors of both terms of a gradient, and the size from which it is in the first one. Gradients from 2^-33
/// to 2^26 have all digits of TF32, once they have the scale of their team.
constexpr float kLargeScale = 0x1p-10f, kSmallScale = 0x1p19f, kLarge = 0x1p-4f;
constexpr unsigned kInfinity = 0x7f800000u;

/// Returns two values as halves: high terms, or what these leave of them.
PENSTOCK_DEVICE unsigned TermOf(float first, float second, int term) {
  const unsigned high = Half::narrow(first, second);
  if (term == 0) return high;
  return Half::narrow(first - Half::widen(high & 0xffffu), second - Half::widen(high >> 16));
}

/// Returns two values of R. Of an infinity its high term leaves nothing.
PENSTOCK_DEVICE unsigned MatrixTerm(float first, float second, int term) {
  const auto infinite = [](float value) { return fabsf(value) == __uint_as_float(kInfinity); };
  return TermOf(term > 0 && infinite(first) ? 0.0f : first, term > 0 && infinite(second) ? 0.0f : second, term);
}

/// Returns two values that are multiplied by R. `scale`: of gradients.
PENSTOCK_DEVICE unsigned OperandTerm(float first, float second, int term, float scale) {
  if constexpr (!kBackward) return TermOf(first, second, term);
  const auto part = [&](float value) {
    value *= scale;
    const bool large = fabsf(value) >= kLarge;
    return large == (term == 0) ? value * (large ? kLargeScale : kSmallScale) : 0.0f;
  };
  return Half::narrow(part(first), part(second));
}

/// Returns a term of eight units as they are multiplied.
PENSTOCK_DEVICE uint4 FactorsOf(const uint4 (&units)[kPieces], int term, float scale = 1.0f) {
  if constexpr (kBytes == 2) {
    return units[0];
  } else {
    unsigned word[4];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const uint4& v = units[p];
      word[2 * p] = OperandTerm(__uint_as_float(v.x), __uint_as_float(v.y), term, scale);
      word[2 * p + 1] = OperandTerm(__uint_as_float(v.z), __uint_as_float(v.w), term, scale);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
}

/// The power of two by which a block multiplies its part of a matrix of floats, and its inverse. Halves then have the
/// most digits of all its values: the largest finite one is 2^14 to 2^15.
PENSTOCK_DEVICE float* ScalesOfMatrix(char* start) { return (float*)(start + kShape.ring_at()) - 2; }
/// The power of two by which a team multiplies its gradients, and its inverse. The largest gradient that enters the
/// team becomes 2^-8 to 2^-7, so that over the steps gradients may grow to 2^33 times its size.
PENSTOCK_DEVICE float* ScalesOfGradients(char* start) { return ScalesOfMatrix(start) - 2; }

/// Returns the bits of the absolute value, which have the order of values; 0 for what is not finite.
PENSTOCK_DEVICE unsigned SizeOf(float value) {
  const unsigned bits = __float_as_uint(value) & 0x7fffffffu;
  return bits < kInfinity ? bits : 0;
}
/// Sets scales such that a value with the bits `most` has the exponent `exponent`; two threads call this.
PENSTOCK_DEVICE void SetScales(float* scales, unsigned most, int exponent, int thread) {
  const int scale = min(max(2 * 127 + exponent - (int)(most >> 23), 1), 253);
  ((unsigned*)scales)[thread] = (unsigned)(thread == 0 ? scale : 254 - scale) << 23;
}
/// Adds up the largest of what all threads found, in a word that was 0; a barrier has to follow.
PENSTOCK_DEVICE void FindLargest(float* word, unsigned most) {
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0) atomicMax((unsigned*)word, most);
}

/// Finds the scales; all threads call this. value_of(part, row of the tile, column of the block). Neighbouring threads
/// read neighbouring rows (`kAlongRows`) or columns.
template <bool kAlongRows, class ValueOf>
PENSTOCK_DEVICE void FindScales(char* start, const ValueOf& value_of) {
  constexpr int tile = WarpgroupShape::tile_rows, rows = (kWide ? kParts : 1) * tile;
  constexpr int columns = kShape.chunks() * WarpgroupShape::chunk_units;
  float* const scales = ScalesOfMatrix(start);
  if (threadIdx.x == 0) scales[0] = 0;
  __syncthreads();
  unsigned most = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * columns; i += kThreads) {
    const int row = kAlongRows ? i % rows : i / columns, column = kAlongRows ? i / rows : i % columns;
    most = max(most, SizeOf(value_of(row / tile, row % tile, column)));
  }
  FindLargest(scales, most);
  __syncthreads();
  most = *(volatile unsigned*)scales;
  __syncthreads();
  if (threadIdx.x < 2) SetScales(scales, most, 14, threadIdx.x);
  __syncthreads();
}
