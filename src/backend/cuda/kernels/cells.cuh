// The cells as NVRTC sees them: src/cells/ over float, with what its text expects of a value type.

#define PENSTOCK_CELL __device__ __forceinline__

namespace std {
using ::exp;
using ::fabs;
using ::log1p;
using ::tanh;
}  // namespace std

PENSTOCK_DEVICE float MulAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
PENSTOCK_DEVICE float Max(float a, float b) { return fmaxf(a, b); }
PENSTOCK_DEVICE float Abs(float x) { return fabsf(x); }
PENSTOCK_DEVICE float Round(float x) { return rintf(x); }
PENSTOCK_DEVICE float Pow2(float n) { return __int_as_float(((int)n + 127) << 23); }
PENSTOCK_DEVICE float SelectPositive(float x, float a, float b) { return x >= 0.0f ? a : b; }
PENSTOCK_DEVICE float SelectZero(float x, float a, float b) { return x == 0.0f ? a : b; }
PENSTOCK_DEVICE float Clamp(float x, float low, float high) {
  float clamped;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(x), "f"(low));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(clamped), "f"(high));
  return clamped;
}

/// The chip's 2^x (2 ULP) instead of a polynomial, with what rounds away in x log2(e) put back; saturates as the
/// general one does.
PENSTOCK_DEVICE float Exp(float x) {
  const float clamped = Clamp(x, -87.33f, 87.3f);
  const float power = clamped * 1.44269504f;
  const float rest = __fmaf_rn(clamped, 1.92596299e-8f, __fmaf_rn(clamped, 1.44269504f, -power));
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
  return __fmaf_rn(e, rest * 0.693147181f, e);
}

#include "cells/prelude.h"

#include "cells/given.h"
#include "cells/list.h"
