// The arithmetic of gates, over a value type V. No include guard and no include on purpose: this text is included once
// inside every region that compiles cells (a Highway target, a host namespace with <cmath> before it, NVRTC).
//
// V is `double` (std:: functions), or any type with + - * /, construction from float, and, found by argument-dependent
// look-up: MulAdd(a, b, c) = a*b + c in one rounding where the machine has it; Max(a, b), through which a NaN in a
// passes; Abs; Clamp(x, low, high), through which NaN passes; Round to the nearest integer; Pow2(n) = 2^n for
// integer-valued n in -126..127; SelectPositive(x, a, b) = x >= 0 ? a : b; SelectZero(x, a, b) = x == 0 ? a : b. A V
// whose machine has shorter ways may overload PowerOfTwo, NearlyMinusLogs, Quotient, Exp and ExpAndSum, and a V of its
// own kind (dual numbers) may instead overload Exp, Tanh, Sigmoid and Softplus.

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

/// n is the integer nearest to x * times / ln 2, and scale = 2^n; `times` is 1 or 2.
template <int times, class V>
PENSTOCK_CELL void PowerOfTwo(V x, V& n, V& scale) {
  n = Round(x * V(times * 1.44269504f));
  scale = Pow2(n);
}

/// a / b within 2 ULP, for b from 1/4 to 2^126 and |a| <= 4 b.
template <class V>
PENSTOCK_CELL V Quotient(V a, V b) {
  return a / b;
}

/// x from which on 1 + e^x is e^x, to the last digit.
PENSTOCK_CELL double OneVanishesFrom(double) { return 40; }
template <class V>
PENSTOCK_CELL V OneVanishesFrom(V) {
  return V(20.0f);
}

/// e^r - 1 for |r| <= ln 2 / 2. The polynomial interpolates (e^r - 1 - r) / r^2 at Chebyshev nodes; its error is below
/// 1.1e-8 of e^r, a fifth of half a unit in the last place. Its powers are formed side by side, because a step of a
/// small cell waits for little else.
template <class V>
PENSTOCK_CELL V SmallExpm1(V r) {
  const V r2 = r * r;
  const V low = MulAdd(r, V(1.6666573286056519e-1f), V(0.5f));
  const V high = MulAdd(r, V(8.363774046301842e-3f), V(4.166654869914055e-2f));
  return MulAdd(r2 * r2, MulAdd(r2, V(1.3926926767453551e-3f), high), MulAdd(r2, low, r));
}

/// x - n ln 2. ln 2 comes in two parts: the high one has few enough bits that n * high is exact.
template <class V>
PENSTOCK_CELL V MinusLogs(V x, V n) {
  return MulAdd(n, V(-1.42860682e-6f), MulAdd(n, V(-0.693145751953125f), x));
}

/// The same, but for 2^-29 n: where the product is not rounded, one part of ln 2 will do.
template <class V>
PENSTOCK_CELL V NearlyMinusLogs(V x, V n) {
  return MinusLogs(x, n);
}

/// e^x within 2 ULP; saturates at e^-87.3 and e^87.3 (in double at e^-707 and e^707) instead of reaching 0 and
/// infinity, so that no quotient of two results is ever NaN, and neither a result nor its reciprocal is ever subnormal.
template <class V>
PENSTOCK_CELL V Exp(V x) {
  V n, scale;
  const V clamped = Clamp(x, V(-87.33f), V(87.3f));
  PowerOfTwo<1>(clamped, n, scale);
  return MulAdd(scale, SmallExpm1(MinusLogs(clamped, n)), scale);
}

/// e = e^x, saturating as Exp() does, and sum = 1 + e, which does not wait for e. Of e, 2 ULP more are wrong towards
/// the ends, where one of the two hardly counts.
template <class V>
PENSTOCK_CELL void ExpAndSum(V x, V& e, V& sum) {
  V n, scale;
  const V clamped = Clamp(x, V(-87.33f), V(87.3f));
  PowerOfTwo<1>(clamped, n, scale);
  const V p = SmallExpm1(NearlyMinusLogs(clamped, n));
  e = MulAdd(scale, p, scale);
  sum = MulAdd(scale, p, scale + V(1.0f));
}

/// tanh x = (e^2x - 1) / (e^2x + 1) within 4 ULP, small x included. Beyond 9.02 it rounds to +-1 in float.
template <class V>
PENSTOCK_CELL V Tanh(V x) {
  V n, scale;
  const V clamped = Clamp(x, V(-9.02f), V(9.02f));
  PowerOfTwo<2>(clamped, n, scale);
  const V p = SmallExpm1(NearlyMinusLogs(clamped + clamped, n));
  return Quotient(MulAdd(scale, p, scale - V(1.0f)), MulAdd(scale, p, scale + V(1.0f)));
}

/// 1 / (1 + e^-x) = e^x / (1 + e^x) within 4 ULP for x > -50, and within 5 beyond.
template <class V>
PENSTOCK_CELL V Sigmoid(V x) {
  V e, sum;
  ExpAndSum(x, e, sum);
  return Quotient(e, sum);
}

/// sigmoid(x) and sigmoid(-x) from one exponential, each as good as Sigmoid(): neither is formed as 1 minus the other,
/// which would lose its digits near 0.
template <class V>
PENSTOCK_CELL void Sigmoids(V x, V& of_x, V& of_minus_x) {
  V e, sum;
  ExpAndSum(V(0.0f) - x, e, sum);
  of_x = Quotient(V(1.0f), sum);
  of_minus_x = e * of_x;
}

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|) within 4 ULP. With s = u / (2 + u), log1p(u) = 2 atanh(s).
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
