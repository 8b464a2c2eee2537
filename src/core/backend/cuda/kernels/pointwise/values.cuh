// Neighbouring values of a tensor as floats, read and written by one thread.

using Bytes = const char*;

/// v = the values from `at` on, in accesses of up to 16 bytes.
template <class S, int kCount>
PENSTOCK_DEVICE void Load(const void* base, Index at, float (&v)[kCount]) {
  constexpr int part = kCount < 16 / S::bytes ? kCount : 16 / S::bytes;
#pragma unroll
  for (int first = 0; first < kCount; first += part) {
    const auto words = Vector<S, part>::read((Bytes)base + (at + first) * S::bytes);
#pragma unroll
    for (int i = 0; i < part; ++i) v[first + i] = words.get(i);
  }
}

/// Neighbouring values as they lie in memory: halves take half the registers of floats.
template <class S, int kCount>
struct Packed {
  static constexpr int part = kCount < 16 / S::bytes ? kCount : 16 / S::bytes;
  Vector<S, part> words[kCount / part];

  PENSTOCK_DEVICE Packed read(const void* base, Index at) {
    Packed packed;
#pragma unroll
    for (int i = 0; i < kCount / part; ++i) {
      packed.words[i] = Vector<S, part>::read((Bytes)base + (at + i * part) * S::bytes);
    }
    return packed;
  }
  PENSTOCK_DEVICE Packed zero() {
    Packed packed;
#pragma unroll
    for (int i = 0; i < kCount / part; ++i) packed.words[i] = Vector<S, part>::zero();
    return packed;
  }
  __device__ __forceinline__ float get(int i) const { return words[i / part].get(i % part); }
};

/// Stores values that another kernel soon reads: L2 may keep them.
template <class S, int kCount>
PENSTOCK_DEVICE void Write(const Vector<S, kCount>& v, char* p) {
  constexpr int bytes = Vector<S, kCount>::bytes;
  if constexpr (bytes == 2) {
    *(unsigned short*)p = (unsigned short)v.word[0];
  } else if constexpr (bytes == 4) {
    *(unsigned*)p = v.word[0];
  } else if constexpr (bytes == 8) {
    *(uint2*)p = make_uint2(v.word[0], v.word[1]);
  } else {
    *(uint4*)p = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
  }
}

/// Stores v from `at` on, and leaves in v what the storage made of it.
template <class S, int kCount>
PENSTOCK_DEVICE void Store(void* base, Index at, float (&v)[kCount]) {
  constexpr int part = kCount < 16 / S::bytes ? kCount : 16 / S::bytes;
#pragma unroll
  for (int first = 0; first < kCount; first += part) {
    float some[part];
#pragma unroll
    for (int i = 0; i < part; ++i) some[i] = v[first + i];
    const auto words = Vector<S, part>::of(some);
    Write(words, (char*)base + (at + first) * S::bytes);
#pragma unroll
    for (int i = 0; i < part; ++i) v[first + i] = words.get(i);
  }
}

/// Leaves in v what the storage would make of it.
template <class S, int kCount>
PENSTOCK_DEVICE void Round(float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float one[1] = {v[i]};
    v[i] = Vector<S, 1>::of(one).get(0);
  }
}

template <class S>
PENSTOCK_DEVICE float LoadOne(const void* base, Index at) {
  float v[1];
  Load<S>(base, at, v);
  return v[0];
}

template <class S>
PENSTOCK_DEVICE void StoreOne(void* base, Index at, float value) {
  float v[1] = {value};
  Store<S>(base, at, v);
}

PENSTOCK_DEVICE bool Finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
PENSTOCK_DEVICE bool Finite(double x) { return fabs(x) <= 1.7976931348623157e308; }

/// e^x within 2 ULP for every x, from 0 to infinity; NaN passes.
PENSTOCK_DEVICE float Exponential(float x) { return expf(x); }

/// The sigmoids of x and of -x, each from its own side, with as many digits as the storage can show. Where x is no
/// number the results are ones, but a product with x is none either.
template <class S>
PENSTOCK_DEVICE void Sigmoids(float x, float& of_x, float& of_minus_x) {
  const float above = fmaxf(x, -80.0f);  // below, the exponential would overflow and the sigmoid is nothing
  float e;
  if constexpr (S::bytes == 4) {
    e = Exponential(-above);
    of_x = __frcp_rn(1.0f + e);
  } else {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(above * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(of_x) : "f"(1.0f + e));
  }
  of_minus_x = e * of_x;
}

/// The step of [B, T] that a position is, and whether its row has it.
struct Place {
  int row, step, length;
  __device__ __forceinline__ bool exists() const { return step < length; }
};

PENSTOCK_DEVICE Place PlaceOf(Index position, int steps, const long long* lengths) {
  Place place;
  place.row = (int)position / steps, place.step = (int)position - place.row * steps;
  place.length = lengths == nullptr ? steps : (int)lengths[place.row];
  return place;
}
