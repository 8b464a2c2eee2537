#include <algorithm>
#include <cmath>
#include <limits>

#include "penstock/csp.h"

/// Rounding is monotone: operations on bounds give bounds of the same operations on numbers between them.
namespace penstock::csp {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Interval hull(double a, double b, double c, double d) {
  // 0 * infinity: the result is unknown.
  if (std::isnan(a) || std::isnan(b) || std::isnan(c) || std::isnan(d)) return {-infinity, infinity};
  return {std::min({a, b, c, d}), std::max({a, b, c, d})};
}

bool is_number(const Interval& a) { return a.low == a.high; }

}  // namespace

Interval operator+(const Interval& a, const Interval& b) { return {a.low + b.low, a.high + b.high}; }
Interval operator-(const Interval& a, const Interval& b) { return {a.low - b.high, a.high - b.low}; }

Interval operator*(const Interval& a, const Interval& b) {
  if (is_number(a) && is_number(b)) return a.low * b.low;
  return hull(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high);
}

Interval operator/(const Interval& a, const Interval& b) {
  if (is_number(a) && is_number(b)) return a.low / b.low;
  if (b.low <= 0 && b.high >= 0) return {-infinity, infinity};
  return hull(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high);
}

Interval min(const Interval& a, const Interval& b) { return {std::min(a.low, b.low), std::min(a.high, b.high)}; }
Interval max(const Interval& a, const Interval& b) { return {std::max(a.low, b.low), std::max(a.high, b.high)}; }

}  // namespace penstock::csp
