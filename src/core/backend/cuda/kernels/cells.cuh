// The cells as NVRTC sees them: src/core/cells/ over a float whose quotients and exponentials are the chip's own.
//
// Constants of the plan: Storage.

#define PENSTOCK_CELL __device__ __forceinline__

namespace std {
using ::exp;
using ::expm1;
using ::fabs;
using ::log1p;
using ::tanh;
}  // namespace std

/// The value type of the cells.
struct Real {
  float value;
  Real() = default;
  PENSTOCK_CELL explicit Real(float of) : value(of) {}
};

PENSTOCK_DEVICE Real operator+(Real a, Real b) { return Real(a.value + b.value); }
PENSTOCK_DEVICE Real operator-(Real a, Real b) { return Real(a.value - b.value); }
PENSTOCK_DEVICE Real operator*(Real a, Real b) { return Real(a.value * b.value); }
/// Within 2 units in the last place, for b whose reciprocal is a normal number, as it is of all sums of exponentials.
PENSTOCK_DEVICE Real operator/(Real a, Real b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b.value));
  return Real(a.value * inverse);
}

PENSTOCK_DEVICE Real MulAdd(Real a, Real b, Real c) { return Real(__fmaf_rn(a.value, b.value, c.value)); }
PENSTOCK_DEVICE Real Max(Real a, Real b) {
  Real larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger.value) : "f"(a.value), "f"(b.value));
  return larger;
}
PENSTOCK_DEVICE Real Abs(Real x) { return Real(fabsf(x.value)); }
PENSTOCK_DEVICE Real Round(Real x) { return Real(rintf(x.value)); }
PENSTOCK_DEVICE Real Pow2(Real n) { return Real(__int_as_float(((int)n.value + 127) << 23)); }
PENSTOCK_DEVICE Real SelectPositive(Real x, Real a, Real b) { return x.value >= 0.0f ? a : b; }
PENSTOCK_DEVICE Real SelectZero(Real x, Real a, Real b) { return x.value == 0.0f ? a : b; }
PENSTOCK_DEVICE Real Clamp(Real x, Real low, Real high) {
  Real clamped;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(clamped.value) : "f"(x.value), "f"(low.value));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(clamped.value) : "f"(clamped.value), "f"(high.value));
  return clamped;
}

/// The chip's 2^x (2 ULP) instead of a polynomial, with what rounds away in x log2(e) put back where numbers have the
/// digits to show it. Saturates at e^86: sums of two results and their reciprocals are then normal numbers.
PENSTOCK_DEVICE Real Exp(Real x) {
  const float clamped = Clamp(x, Real(-86.0f), Real(86.0f)).value;
  const float power = clamped * 1.44269504f;
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
  if constexpr (Storage::bytes == 2) return Real(e);
  const float rest = __fmaf_rn(clamped, 1.92596299e-8f, __fmaf_rn(clamped, 1.44269504f, -power));
  return Real(__fmaf_rn(e, rest * 0.693147181f, e));
}

PENSTOCK_DEVICE void ExpAndSum(Real x, Real& e, Real& sum) {
  e = Exp(x);
  sum = e + Real(1.0f);
}

#include "cells/gate_functions.h"

#include "cells/given.h"
#include "cells/list.h"

#include "backend/cuda/kernels/custom_functions.cuh"

/// e^x - a for a number a that is e^x rounded, where e^x is near 1; 0 elsewhere, where a has all its digits.
PENSTOCK_DEVICE Real RestOfExp(Real x, Real a) {
  const Real near(0.34f);  // SmallExpm1() reaches ln 2 / 2
  const Real rest = SmallExpm1(Clamp(x, Real(0.0f) - near, near)) - (a - Real(1.0f));
  return SelectPositive(near - Abs(x), rest, Real(0.0f));
}

/// Factor by which steps multiply a state: a number, or its logarithm if the rule splits gains (cells/recurrence.h).
/// Sums of logarithms keep the digits of decays close to 1, for one step and for thousands.
template <class Rule>
struct Gain {
  static constexpr bool is_log = Rule::splits_gain;
  /// Gains of no step and of a reset, which clears even an infinite state.
  PENSTOCK_DEVICE float none() { return is_log ? 0.0f : 1.0f; }
  PENSTOCK_DEVICE float reset() { return is_log ? __int_as_float(0xff800000) : 0.0f; }
  PENSTOCK_DEVICE float together(float gain, float next) { return is_log ? gain + next : gain * next; }

  /// gain h + offset.
  PENSTOCK_DEVICE float advance(float gain, float h, float offset) {
    if constexpr (is_log) {
      asm volatile("" : "+f"(gain));                 // exponentials of many steps beforehand would take all registers
      constexpr float least = -80.0f, most = 86.0f;  // beyond, a float's exponential is nothing or infinite
      Real a = Exp(Real(gain));
      if (gain < least) a = Real(0.0f);
      if (gain > most) a = Real(__int_as_float(0x7f800000));
      offset = __fmaf_rn(RestOfExp(Real(gain), a).value, h, offset);
      return __fmaf_rn(a.value, h, offset);
    } else {
      return __fmaf_rn(gain, h, offset);
    }
  }
};

/// K, the learnt vectors of a cell that a program defined; 0 of other cells.
template <class Cell>
PENSTOCK_DEVICE constexpr int LearntVectors() {
  if constexpr (requires { Cell::learnt; }) {
    return Cell::learnt;
  } else {
    return 0;
  }
}

/// The values of a unit's learnt vectors, or their gradients.
template <class Cell>
struct LearntValues {
  static constexpr int count = LearntVectors<Cell>(), places = count > 0 ? count : 1;
  float of[places];

  __device__ __forceinline__ void clear() {
    for (int k = 0; k < count; ++k) of[k] = 0.0f;
  }
  /// Reads a unit of float [K, H]; `exists`: otherwise zeros.
  __device__ __forceinline__ void read(const float* vectors, int hidden, int channel, bool exists = true) {
    for (int k = 0; k < count; ++k) of[k] = exists ? __ldg(vectors + (Index)k * hidden + channel) : 0.0f;
  }
  /// Adds to a unit of float [rows, K, H], which no other thread adds to; null: nothing.
  __device__ __forceinline__ void add_to(float* sums, int row, int hidden, int channel) const {
    if (sums == nullptr) return;
    for (int k = 0; k < count; ++k) sums[((Index)row * count + k) * hidden + channel] += of[k];
  }
  template <class V>
  __device__ __forceinline__ void put(V (&values)[places]) const {
    for (int k = 0; k < count; ++k) values[k] = V(of[k]);
  }
  __device__ __forceinline__ void add(const Real (&gradient)[places]) {
    for (int k = 0; k < count; ++k) of[k] += gradient[k].value;
  }
};

/// The gain of a step and b from its values.
template <class Rule>
PENSTOCK_DEVICE void Affine(const float (&value)[Rule::gates], const LearntValues<Rule>& learnt, float& gain,
                            float& b) {
  Real wx[Rule::gates], of_a, of_b;
  for (int g = 0; g < Rule::gates; ++g) wx[g] = Real(value[g]);
  if constexpr (LearntVectors<Rule>() > 0) {
    Real vectors[LearntValues<Rule>::places];
    learnt.put(vectors);
    Rule::affine(wx, vectors, of_a, of_b);
  } else {
    Rule::affine(wx, of_a, of_b);
  }
  gain = of_a.value, b = of_b.value;
  if constexpr (Rule::splits_gain) gain = Rule::log_gain(wx).value;
}

/// Gradients of a step's values from those of a and b; adds those of the learnt vectors to `dlearnt`.
template <class Rule>
PENSTOCK_DEVICE void AffineBackward(const float (&value)[Rule::gates], const LearntValues<Rule>& learnt, float da,
                                    float db, float (&dvalue)[Rule::gates], LearntValues<Rule>& dlearnt) {
  Real wx[Rule::gates], dwx[Rule::gates];
  for (int g = 0; g < Rule::gates; ++g) wx[g] = Real(value[g]);
  if constexpr (LearntVectors<Rule>() > 0) {
    Real vectors[LearntValues<Rule>::places], dvectors[LearntValues<Rule>::places];
    learnt.put(vectors);
    Rule::affine_backward(wx, vectors, Real(da), Real(db), dvectors, dwx);
    dlearnt.add(dvectors);
  } else {
    Rule::affine_backward(wx, Real(da), Real(db), dwx);
  }
  for (int g = 0; g < Rule::gates; ++g) dvalue[g] = dwx[g].value;
}
