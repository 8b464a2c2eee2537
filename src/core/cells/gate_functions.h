// The arithmetic of gates over a value type V. There is no include guard and no include on purpose: this text is
// included once inside every region that compiles cells (a Highway target, a host namespace after <cmath>, NVRTC).
//
// V is `double` (std:: functions), or a type with + - * /, construction from float, and these functions, found by
// argument-dependent lookup:
//   MulAdd(a, b, c) = a*b + c, with one rounding where the machine has it;
//   Max(a, b), which passes a NaN in a on;
//   Abs(x); Clamp(x, low, high), which passes NaN on; Round(x) to the nearest integer;
//   Pow2(n) = 2^n for integer-valued n in -126..127;
//   SelectPositive(x, a, b) = x >= 0 ? a : b; SelectZero(x, a, b) = x == 0 ? a : b.
// A V with faster instructions may overload PowerOfTwo, NearlyMinusLogs, Quotient, Exp and ExpAndSum, or, as the
// vectors for bf16 of backend/cpu/vec.inl, Sigmoid and Tanh. A V of another kind, such as dual numbers, overloads Exp,
// Tanh, Sigmoid and Softplus.

#ifndef PENSTOCK_CELL
#define PENSTOCK_CELL inline __attribute__((always_inline))
#endif

PENSTOCK_CELL double MulAdd(double a, double b, double c) { return a * b + c; }
PENSTOCK_CELL double Max(double a, double b) { return a < b ? b : a; }
PENSTOCK_CELL double Clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
PENSTOCK_CELL double SelectPositive(double x, double a, double b) { return x >= 0 ? a : b; }
PENSTOCK_CELL double SelectZero(double x, double a, double b) { return x == 0 ? a : b; }
PENSTOCK_CELL double Exp(double x) { return std::exp(Clamp(x, -707, 707)); }
PENSTOCK_CELL double Tanh(double x) { return std::tanh(x); }
PENSTOCK_CELL double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
PENSTOCK_CELL void Sigmoids(double x, double& of_x, double& of_minus_x) {
  of_x = Sigmoid(x);
  of_minus_x = Sigmoid(-x);
}
PENSTOCK_CELL double Softplus(double x) { return Max(x, 0) + std::log1p(std::exp(-std::fabs(x))); }

/// Sets n to the integer nearest to x * times / ln 2, and scale to 2^n. `times` is 1 or 2.
template <int times, class V>
PENSTOCK_CELL void PowerOfTwo(V x, V& n, V& scale) {
  n = Round(x * V(times * 1.44269504f));
  scale = Pow2(n);
}

/// Returns a / b within 2 ULP, for b from 1/4 to 2^126 and |a| <= 4 b.
template <class V>
PENSTOCK_CELL V Quotient(V a, V b) {
  return a / b;
}

/// Returns the x from which on 1 + e^x equals e^x after rounding.
PENSTOCK_CELL double OneVanishesFrom(double) { return 40; }
template <class V>
PENSTOCK_CELL V OneVanishesFrom(V) {
  return V(20.0f);
}

/// Returns e^r - 1 for |r| <= ln 2 / 2. The polynomial interpolates (e^r - 1 - r) / r^2 at Chebyshev nodes; its error
/// is below 1.1e-8 of e^r, a fifth of half a unit in the last place. Its powers are computed in parallel, because the
/// latency of this function dominates a step of a small cell.
template <class V>
PENSTOCK_CELL V SmallExpm1(V r) {
  const V r2 = r * r;
  const V low = MulAdd(r, V(1.6666573286056519e-1f), V(0.5f));
  const V high = MulAdd(r, V(8.363774046301842e-3f), V(4.166654869914055e-2f));
  return MulAdd(r2 * r2, MulAdd(r2, V(1.3926926767453551e-3f), high), MulAdd(r2, low, r));
}

/// Returns x - n ln 2. ln 2 is split into two parts; the high part has few enough bits for n * high to be exact.
template <class V>
PENSTOCK_CELL V MinusLogs(V x, V n) {
  return MulAdd(n, V(-1.42860682e-6f), MulAdd(n, V(-0.693145751953125f), x));
}

/// Returns x - n ln 2 with an error of up to 2^-29 n. Where MulAdd does not round the product, one part of ln 2
/// suffices.
template <class V>
PENSTOCK_CELL V NearlyMinusLogs(V x, V n) {
  return MinusLogs(x, n);
}

/// Returns e^x within 2 ULP. It saturates at e^-87.33 and e^87.3 (in double at e^-707 and e^707) instead of reaching
/// 0 and infinity: a quotient of two results is never NaN, and neither a result nor its reciprocal is subnormal.
template <class V>
PENSTOCK_CELL V Exp(V x) {
  V n, scale;
  const V clamped = Clamp(x, V(-87.33f), V(87.3f));
  PowerOfTwo<1>(clamped, n, scale);
  return MulAdd(scale, SmallExpm1(MinusLogs(clamped, n)), scale);
}

/// Sets e to e^x, saturated as in Exp(), and sum to 1 + e without waiting for e. The error of e is 2 ULP larger towards
/// the ends of the range, where e or 1 is negligible in the sum.
template <class V>
PENSTOCK_CELL void ExpAndSum(V x, V& e, V& sum) {
  V n, scale;
  const V clamped = Clamp(x, V(-87.33f), V(87.3f));
  PowerOfTwo<1>(clamped, n, scale);
  const V p = SmallExpm1(NearlyMinusLogs(clamped, n));
  e = MulAdd(scale, p, scale);
  sum = MulAdd(scale, p, scale + V(1.0f));
}

/// Returns tanh x = (e^2x - 1) / (e^2x + 1) within 4 ULP, also for small x. Beyond 9.02 it rounds to +-1 in float.
template <class V>
PENSTOCK_CELL V Tanh(V x) {
  V n, scale;
  const V clamped = Clamp(x, V(-9.02f), V(9.02f));
  PowerOfTwo<2>(clamped, n, scale);
  const V p = SmallExpm1(NearlyMinusLogs(clamped + clamped, n));
  return Quotient(MulAdd(scale, p, scale - V(1.0f)), MulAdd(scale, p, scale + V(1.0f)));
}

/// Returns 1 / (1 + e^-x) = e^x / (1 + e^x) within 4 ULP for x > -50, and within 5 ULP below.
template <class V>
PENSTOCK_CELL V Sigmoid(V x) {
  V e, sum;
  ExpAndSum(x, e, sum);
  return Quotient(e, sum);
}

/// Computes sigmoid(x) and sigmoid(-x) from one exponential with the accuracy of Sigmoid(). Neither is 1 minus the
/// other, which would lose digits near 0.
template <class V>
PENSTOCK_CELL void Sigmoids(V x, V& of_x, V& of_minus_x) {
  V e, sum;
  ExpAndSum(V(0.0f) - x, e, sum);
  of_x = Quotient(V(1.0f), sum);
  of_minus_x = e * of_x;
}

/// Returns log(1 + e^x) = max(x, 0) + log1p(e^-|x|) within 4 ULP. With s = u / (2 + u), log1p(u) = 2 atanh(s).
template <class V>
PENSTOCK_CELL V Softplus(V x) {
  const V u = Exp(V(0.0f) - Abs(x));
  const V s = Quotient(u, u + V(2.0f));
  const V w = s * s;
  V q = MulAdd(w, V(2.3224329948425293e-1f), V(2.170657515525818e-1f));
  q = MulAdd(w, q, V(2.85923570394516e-1f));
  q = MulAdd(w, q, V(3.999970555305481e-1f));
  q = MulAdd(w, q, V(6.666666865348816e-1f));
  return Max(x, V(0.0f)) + MulAdd(w * s, q, s + s);
}
