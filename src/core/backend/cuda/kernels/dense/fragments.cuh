// Products of a recurrent matrix with the states of a few rows, by one warp, for operands of any storage: D += A B with
// 16 rows of A (of the recurrent matrix) and 8 columns of B (batch rows). Both operands are read in *chunks* of 64
// bytes of the summed axis: 16 consecutive bytes of a row belong to one thread. In which order the tensor cores see the
// factors does not matter as long as A and B agree on it, so that a thread needs one access of 16 bytes for two
// multiplications instead of two (halves) or four (floats) for each.
//
// A thread's lane is 4 * g + t. Of A it holds bytes 16 t .. 16 t + 15 of rows g and g + 8 of a chunk, of B those of
// column g, of D columns 2 t and 2 t + 1 of rows g (values 0, 1) and g + 8 (values 2, 3).
//
// Needs cells.cuh or prelude.cuh.

constexpr int kChunkBytes = 64;

/// A thread's part of a chunk of A: of row g, and of row g + 8.
struct RowFragment {
  uint4 upper, lower;
};

/// A word of A as MultiplyHalves() takes it.
template <class Storage>
PENSTOCK_DEVICE unsigned AsFactor(unsigned bits, Storage) {
  return bits;
}
/// Tensor cores ignore the last 13 bits of a float: this rounds to those that they read. A NaN may have no other bits,
/// or all of them, which an addition would make 0: it becomes the NaN of arithmetic.
PENSTOCK_DEVICE unsigned AsFactor(unsigned bits, Tf32) {
  const float value = __uint_as_float(bits);
  return fabsf(value) < __uint_as_float(0x7f800000u) ? bits + 0x1000u : __float_as_uint(value + value);
}
template <class Storage>
PENSTOCK_DEVICE uint4 AsFactors(const uint4& v, Storage storage) {
  return make_uint4(AsFactor(v.x, storage), AsFactor(v.y, storage), AsFactor(v.z, storage), AsFactor(v.w, storage));
}

PENSTOCK_DEVICE void MultiplyHalves(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1, Bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

PENSTOCK_DEVICE void MultiplyHalves(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1, F16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

PENSTOCK_DEVICE void MultiplyTf32(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                  unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <class Storage>
PENSTOCK_DEVICE constexpr bool HasParts(Storage) {
  return false;
}
PENSTOCK_DEVICE constexpr bool HasParts(F32) { return true; }

/// A float as the sum of two numbers that the tensor cores multiply exactly, as in split_product.cuh.
struct TwoParts {
  unsigned high, low;
  PENSTOCK_DEVICE TwoParts of(unsigned bits) {
    TwoParts parts;
    parts.high = bits + 0x1000u;
    parts.low = __float_as_uint(__uint_as_float(bits) - __uint_as_float(parts.high & 0xffffe000u));
    return parts;
  }
};

/// The same bits; what depends on them is made anew each time, and not kept from step to step.
PENSTOCK_DEVICE unsigned Anew(unsigned bits) {
  asm volatile("" : "+r"(bits));
  return bits;
}

/// Floats, whose parts the compiler may keep from step to step.
PENSTOCK_DEVICE void MultiplyFloats(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
  const TwoParts p0 = TwoParts::of(a0), p1 = TwoParts::of(a1), p2 = TwoParts::of(a2), p3 = TwoParts::of(a3);
  const TwoParts q0 = TwoParts::of(b0), q1 = TwoParts::of(b1);
  MultiplyTf32(sum, p0.low, p1.low, p2.low, p3.low, q0.high, q1.high);
  MultiplyTf32(sum, p0.high, p1.high, p2.high, p3.high, q0.low, q1.low);
  MultiplyTf32(sum, p0.high, p1.high, p2.high, p3.high, q0.high, q1.high);
}

/// A matrix that stays in registers would otherwise be kept in both parts.
PENSTOCK_DEVICE void MultiplyHalves(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1, F32) {
  MultiplyFloats(sum, Anew(a0), Anew(a1), Anew(a2), Anew(a3), Anew(b0), Anew(b1));
}

/// The words of B are rounded here, once for all rows of A; those of A are as AsFactor() made them.
PENSTOCK_DEVICE void MultiplyHalves(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1, Tf32 storage) {
  MultiplyTf32(sum, a0, a1, a2, a3, AsFactor(b0, storage), AsFactor(b1, storage));
}

/// 16 bytes of a thread, whose values `value(i)` names: for operands that do not lie in memory as they are multiplied.
template <class Storage, class ValueBits>
PENSTOCK_DEVICE uint4 Gather(const ValueBits& value_bits) {
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Storage::bytes == 4) {
      word[i] = value_bits(i);
    } else {
      word[i] = value_bits(2 * i) | value_bits(2 * i + 1) << 16;
    }
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// The bits of one stored value.
template <class Storage>
PENSTOCK_DEVICE unsigned LoadBits(const char* p) {
  if constexpr (Storage::bytes == 4) return __ldg((const unsigned*)p);
  return __ldg((const unsigned short*)p);
}
