// Basics of every kernel: storage types and vectors of neighbouring values. Compiled by NVRTC, without any header of
// CUDA.

#define PENSTOCK_DEVICE static __device__ __forceinline__

#include "backend/cuda/kernels/dense/pass.h"
#include "backend/cuda/kernels/scan/pass.h"

using Index = long long;

/// First of all in a kernel that may be started before the one before it has ended (KernelSource::early): waits until
/// its results are there, and lets the next kernel's blocks come as soon as there is room for them, to wait likewise.
PENSTOCK_DEVICE void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// How numbers lie in memory. Bits are kept in words until arithmetic needs them, since two halves fit a register.
struct F32 {
  static constexpr int bytes = 4;
};
/// Floats whose products may round their factors to 10 bits of mantissa.
struct Tf32 : F32 {};
struct Bf16 {
  static constexpr int bytes = 2;
  PENSTOCK_DEVICE float widen(unsigned half) { return __uint_as_float(half << 16); }
  PENSTOCK_DEVICE unsigned narrow(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
};
struct F16 {
  static constexpr int bytes = 2;
  PENSTOCK_DEVICE float widen(unsigned half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return value;
  }
  PENSTOCK_DEVICE unsigned narrow(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
};

/// `kCount` neighbouring values of a tensor, as they lie in memory.
template <class Storage, int kCount>
struct Vector {
  static constexpr int bytes = Storage::bytes * kCount;
  static constexpr int words = (bytes + 3) / 4;
  static_assert(bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16, "one access of one thread");
  unsigned word[words];

  PENSTOCK_DEVICE Vector zero() {
    Vector v;
    for (int i = 0; i < words; ++i) v.word[i] = 0;
    return v;
  }

  /// Reads from shared memory.
  PENSTOCK_DEVICE Vector read(const char* p) {
    Vector v;
    if constexpr (bytes == 2) {
      v.word[0] = *(const unsigned short*)p;
    } else if constexpr (bytes == 4) {
      v.word[0] = *(const unsigned*)p;
    } else if constexpr (bytes == 8) {
      const uint2 pair = *(const uint2*)p;
      v.word[0] = pair.x, v.word[1] = pair.y;
    } else {
      const uint4 four = *(const uint4*)p;
      v.word[0] = four.x, v.word[1] = four.y, v.word[2] = four.z, v.word[3] = four.w;
    }
    return v;
  }

  /// Writes to shared memory.
  __device__ __forceinline__ void put(char* p) const {
    if constexpr (bytes == 2) {
      *(unsigned short*)p = (unsigned short)word[0];
    } else if constexpr (bytes == 4) {
      *(unsigned*)p = word[0];
    } else if constexpr (bytes == 8) {
      *(uint2*)p = make_uint2(word[0], word[1]);
    } else {
      *(uint4*)p = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  /// Writes to global memory values that nothing reads soon: L2 may drop them first.
  __device__ __forceinline__ void store(char* p) const {
    if constexpr (bytes == 2) {
      asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"((unsigned short)word[0]) : "memory");
    } else if constexpr (bytes == 4) {
      asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(word[0]) : "memory");
    } else if constexpr (bytes == 8) {
      asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(word[0]), "r"(word[1]) : "memory");
    } else {
      asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                   "r"(word[3])
                   : "memory");
    }
  }

  /// The compiler no longer knows what it made of these values, and keeps none of it.
  __device__ __forceinline__ void forget() {
    for (int i = 0; i < words; ++i) asm volatile("" : "+r"(word[i]));
  }

  __device__ __forceinline__ float get(int i) const {
    if constexpr (Storage::bytes == 4) {
      return __uint_as_float(word[i]);
    } else {
      return Storage::widen(i % 2 == 0 ? word[i / 2] & 0xffffu : word[i / 2] >> 16);
    }
  }

  PENSTOCK_DEVICE Vector of(const float (&values)[kCount]) {
    Vector v;
    if constexpr (Storage::bytes == 4) {
      for (int i = 0; i < kCount; ++i) v.word[i] = __float_as_uint(values[i]);
    } else {
      for (int i = 0; i < words; ++i) {
        v.word[i] = Storage::narrow(values[2 * i], 2 * i + 1 < kCount ? values[2 * i + 1] : 0.0f);
      }
    }
    return v;
  }
};

/// Starts a copy of `kBytes` from global to shared memory; zeros where there is nothing to read.
template <int kBytes>
PENSTOCK_DEVICE void CopyAsync(char* shared, const char* global, bool exists) {
  const auto to = (unsigned)__cvta_generic_to_shared(shared);
  const int size = exists ? kBytes : 0;
  if constexpr (kBytes == 2) {
    // Too narrow for asynchronous copies: a load and a store.
    *(unsigned short*)shared = exists ? *(const unsigned short*)global : (unsigned short)0;
  } else if constexpr (kBytes == 16) {
    // Past L1, whose lines would otherwise limit how much can be under way.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(kBytes), "r"(size)
                 : "memory");
  }
}

PENSTOCK_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` groups of this thread's copies are under way.
template <int kPending>
PENSTOCK_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
