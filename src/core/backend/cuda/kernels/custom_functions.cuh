// Functions that only cells which a program defined call (src/core/custom/cuda_text.h). Include after the prelude of
// cells.

/// a / b within 2 units in the last place, for every b.
PENSTOCK_DEVICE Real Ratio(Real a, Real b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a.value), "f"(b.value));
  return Real(quotient);
}
/// c - a b
PENSTOCK_DEVICE Real SubtractProduct(Real a, Real b, Real c) { return Real(__fmaf_rn(-a.value, b.value, c.value)); }
PENSTOCK_DEVICE Real Log(Real x) { return Real(logf(x.value)); }
PENSTOCK_DEVICE Real Sine(Real x) { return Real(sinf(x.value)); }
PENSTOCK_DEVICE Real Cosine(Real x) { return Real(cosf(x.value)); }
PENSTOCK_DEVICE Real ErrorFunction(Real x) { return Real(erff(x.value)); }
PENSTOCK_DEVICE Real Root(Real x) { return Real(sqrtf(x.value)); }
/// 1 / sqrt(x) within 2 units in the last place.
PENSTOCK_DEVICE Real InverseRoot(Real x) {
  float inverse;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x.value));
  return Real(inverse);
}
PENSTOCK_DEVICE Real Most(Real a, Real b) { return Max(a, b); }
PENSTOCK_DEVICE Real Least(Real a, Real b) {
  Real smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller.value) : "f"(a.value), "f"(b.value));
  return smaller;
}
PENSTOCK_DEVICE Real Less(Real a, Real b) { return Real(a.value < b.value ? 1.0f : 0.0f); }
PENSTOCK_DEVICE Real LessEqual(Real a, Real b) { return Real(a.value <= b.value ? 1.0f : 0.0f); }
PENSTOCK_DEVICE Real Equal(Real a, Real b) { return Real(a.value == b.value ? 1.0f : 0.0f); }

// Gates with a small relative error in every storage: overloads of Tanh() and others may have a small absolute error.
PENSTOCK_DEVICE Real PreciseTanh(Real x) { return Tanh<Real>(x); }
PENSTOCK_DEVICE Real PreciseSigmoid(Real x) { return Sigmoid<Real>(x); }
PENSTOCK_DEVICE Real PreciseSoftplus(Real x) { return Softplus<Real>(x); }
