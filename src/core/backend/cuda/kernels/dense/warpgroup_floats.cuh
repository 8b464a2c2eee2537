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
/// to 2^26 have all digits of TF32.
constexpr float kLargeScale = 0x1p-10f, kSmallScale = 0x1p19f, kLarge = 0x1p-4f;

/// Returns two values of R as halves: high terms, or what these leave of them.
PENSTOCK_DEVICE unsigned MatrixTerm(float first, float second, int term) {
  const unsigned high = Half::narrow(first, second);
  if (term == 0) return high;
  return Half::narrow(first - Half::widen(high & 0xffffu), second - Half::widen(high >> 16));
}

/// Returns two values that are multiplied by R as halves.
PENSTOCK_DEVICE unsigned OperandTerm(float first, float second, int term) {
  if (!kBackward || kTerms == 1) return MatrixTerm(first, second, term);
  const auto part = [&](float value) {
    const bool large = fabsf(value) >= kLarge;
    return large == (term == 0) ? value * (large ? kLargeScale : kSmallScale) : 0.0f;
  };
  return Half::narrow(part(first), part(second));
}

/// Returns a term of eight units as they are multiplied.
PENSTOCK_DEVICE uint4 FactorsOf(const uint4 (&units)[kPieces], int term) {
  if constexpr (kBytes == 2) {
    return units[0];
  } else {
    unsigned word[4];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const uint4& v = units[p];
      word[2 * p] = OperandTerm(__uint_as_float(v.x), __uint_as_float(v.y), term);
      word[2 * p + 1] = OperandTerm(__uint_as_float(v.z), __uint_as_float(v.w), term);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
}

/// The power of two by which a block multiplies its part of a matrix of floats, and its inverse. Halves then have the
/// most digits of all its values: the largest one is 2^14 to 2^15.
PENSTOCK_DEVICE float* ScalesOfMatrix(char* start) { return (float*)(start + kShape.ring_at()) - 2; }

/// Finds the scales; all threads call this. value_of(part, row of the tile, column of the block). Neighbouring threads
/// read neighbouring rows (`kAlongRows`) or columns.
template <bool kAlongRows, class ValueOf>
PENSTOCK_DEVICE void FindScales(char* start, const ValueOf& value_of) {
  constexpr int tile = WarpgroupShape::tile_rows, rows = (kWide ? kParts : 1) * tile;
  constexpr int columns = kShape.chunks() * WarpgroupShape::chunk_units;
  auto* const words = (unsigned*)ScalesOfMatrix(start);
  if (threadIdx.x == 0) words[0] = 0;
  __syncthreads();
  unsigned most = 0;  // bits of absolute values, which have the order of the values
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * columns; i += kThreads) {
    const int row = kAlongRows ? i % rows : i / columns, column = kAlongRows ? i / rows : i % columns;
    most = max(most, __float_as_uint(value_of(row / tile, row % tile, column)) & 0x7fffffffu);
  }
  atomicMax(words, most);
  __syncthreads();
  const int exponent = min(127 + 14 + 127 - (int)(words[0] >> 23), 253);
  __syncthreads();
  if (threadIdx.x < 2) words[threadIdx.x] = (unsigned)(threadIdx.x == 0 ? exponent : 254 - exponent) << 23;
  __syncthreads();
}
