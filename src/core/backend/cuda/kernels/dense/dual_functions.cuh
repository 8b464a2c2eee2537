// The functions of backend/cuda/kernels/custom_functions.cuh over a value with its derivatives (Dual of diagonal.cuh).

PENSTOCK_CELL Dual Ratio(const Dual& a, const Dual& b) {
  Dual y;
  y.value = Ratio(a.value, b.value);
  for (int k = 0; k < kStates; ++k) y.slope[k] = Ratio(SubtractProduct(y.value, b.slope[k], a.slope[k]), b.value);
  return y;
}
PENSTOCK_CELL Dual SubtractProduct(const Dual& a, const Dual& b, const Dual& c) { return c - a * b; }
PENSTOCK_CELL Dual Log(const Dual& x) { return Chained(Log(x.value), x, Ratio(Real(1.0f), x.value)); }
PENSTOCK_CELL Dual Sine(const Dual& x) { return Chained(Sine(x.value), x, Cosine(x.value)); }
PENSTOCK_CELL Dual Cosine(const Dual& x) { return Chained(Cosine(x.value), x, Real(0.0f) - Sine(x.value)); }
/// Its slope is 2 / sqrt(pi) e^(-x^2).
PENSTOCK_CELL Dual ErrorFunction(const Dual& x) {
  return Chained(ErrorFunction(x.value), x, Real(1.12837917f) * Exp(Real(0.0f) - x.value * x.value));
}
PENSTOCK_CELL Dual Root(const Dual& x) {
  const Real y = Root(x.value);
  return Chained(y, x, Ratio(Real(0.5f), y));
}
PENSTOCK_CELL Dual Abs(const Dual& x) { return Either(x.value.value < 0.0f, Dual(0.0f) - x, x); }
PENSTOCK_CELL Dual Most(const Dual& a, const Dual& b) { return Max(a, b); }
PENSTOCK_CELL Dual Least(const Dual& a, const Dual& b) {
  Dual y = Either(b.value.value < a.value.value, b, a);
  y.value = Least(a.value, b.value);
  return y;
}
PENSTOCK_CELL Dual Clamp(const Dual& x, const Dual& low, const Dual& high) {
  Dual y = Either(x.value.value < low.value.value, low, Either(high.value.value < x.value.value, high, x));
  y.value = Clamp(x.value, low.value, high.value);
  return y;
}
PENSTOCK_CELL Dual Less(const Dual& a, const Dual& b) { return Dual(Less(a.value, b.value).value); }
PENSTOCK_CELL Dual LessEqual(const Dual& a, const Dual& b) { return Dual(LessEqual(a.value, b.value).value); }
PENSTOCK_CELL Dual Equal(const Dual& a, const Dual& b) { return Dual(Equal(a.value, b.value).value); }
PENSTOCK_CELL Dual PreciseTanh(const Dual& x) {
  const Real y = PreciseTanh(x.value);
  return Chained(y, x, Real(1.0f) - y * y);
}
PENSTOCK_CELL Dual PreciseSigmoid(const Dual& x) {
  const Real y = PreciseSigmoid(x.value);
  return Chained(y, x, y * (Real(1.0f) - y));
}
PENSTOCK_CELL Dual PreciseSoftplus(const Dual& x) {
  return Chained(PreciseSoftplus(x.value), x, PreciseSigmoid(x.value));
}
