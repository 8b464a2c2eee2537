#include "csp/arithmetic.h"

#include <cstdlib>

namespace penstock::csp {
namespace {

constexpr Range everything = {-largest, largest};
constexpr Range nothing = {1, 0};

Range negative(Range a) { return {-a.high, -a.low}; }
Integer magnitude(Range a) { return std::max(std::abs(a.low), std::abs(a.high)); }

Range hull(Integer a, Integer b, Integer c, Integer d) { return {std::min({a, b, c, d}), std::max({a, b, c, d})}; }

/// Returns the range of a divisor, which is not zero, without zeros at its ends.
Range without_zero(Range divisor) {
  if (divisor.low == 0) divisor.low = 1;
  if (divisor.high == 0) divisor.high = -1;
  return divisor;
}

Range truth(bool surely, bool possibly) { return {surely ? 1 : 0, possibly ? 1 : 0}; }

/// Returns bounds of quotients. With any rounding they are monotone in both operands while the divisor keeps its sign.
template <class Divide>
Range quotient(Range a, Range b, Divide divide) {
  b = without_zero(b);
  if (b.empty()) return everything;  // no divisor is left; propagation detects the empty range elsewhere
  if (b.contains(0)) return {-magnitude(a), magnitude(a)};
  return hull(divide(a.low, b.low), divide(a.low, b.high), divide(a.high, b.low), divide(a.high, b.high));
}

Range remainder(Range a, Range b) {
  b = without_zero(b);
  if (b.empty()) return everything;
  if (a.fixed() && b.fixed()) return {a.low % b.low, a.low % b.low};
  const Integer least = b.contains(0) ? 1 : std::min(std::abs(b.low), std::abs(b.high));
  if (magnitude(a) < least) return a;  // smaller than any divisor: the remainder is a itself
  // Between two multiples of a fixed divisor, remainders increase with a.
  const bool one_block = b.fixed() && (a.low >= 0 || a.high <= 0) && a.low / b.low == a.high / b.low;
  if (one_block) return {a.low % b.low, a.high % b.low};
  const Integer most = magnitude(b) - 1;
  return {a.low >= 0 ? 0 : std::max(a.low, -most), a.high <= 0 ? 0 : std::min(a.high, most)};
}

/// Narrows x to values with x * y = z for some y.
void narrow_factor(Range z, Range y, Range& x) {
  if (z.contains(0) && y.contains(0)) return;
  y = without_zero(y);
  if (y.empty()) {
    x = nothing;
    return;
  }
  if (y.contains(0)) return narrow(x, {-magnitude(z), magnitude(z)});
  if (y.high < 0) {
    y = negative(y);
    z = negative(z);
  }
  narrow(x, {ceil_of(z.low, z.low >= 0 ? y.high : y.low), floor_of(z.high, z.high >= 0 ? y.low : y.high)});
}

/// Narrows x and y for x / y = z, rounded towards zero.
void narrow_quotient(Range z, Range& x, Range& y) {
  y = without_zero(y);
  if (y.empty() || y.contains(0)) return;
  const bool flipped = y.high < 0;
  const Range by = flipped ? negative(y) : y;
  if (flipped) z = negative(z);
  const Integer above = z.high >= 0 ? product(z.high + 1, by.high) - 1 : product(z.high, by.low);
  const Integer below = z.low <= 0 ? product(z.low - 1, by.high) + 1 : product(z.low, by.low);
  narrow(x, {below, above});
  if (flipped || x.empty() || x.low < 0 || z.high < 0) return;
  y.low = std::max(y.low, x.low / (z.high + 1) + 1);
  if (z.low > 0) y.high = std::min(y.high, x.high / z.low);
}

/// Narrows x and y for x / y = z, rounded up.
void narrow_ceiling(Range z, Range& x, Range& y) {
  y = without_zero(y);
  if (y.empty() || y.low <= 0) return;
  const Integer above = product(z.high, z.high >= 0 ? y.high : y.low);
  const Integer below = product(z.low - 1, z.low > 0 ? y.low : y.high) + 1;
  narrow(x, {below, above});
  if (x.empty() || x.low < 0 || z.high < 0) return;
  if (z.high > 0) y.low = std::max(y.low, ceil_of(x.low, z.high));
  if (z.low > 1) y.high = std::min(y.high, (x.high - 1) / (z.low - 1));
}

/// Narrows x and y for x % y = z.
void narrow_remainder(Range z, Range& x, Range& y) {
  y = without_zero(y);
  if (y.empty()) return;
  if (z.low > 0) x.low = std::max(x.low, Integer{1});
  if (z.high < 0) x.high = std::min(x.high, Integer{-1});
  if (z.fixed() && y.fixed() && (z.low == 0 || (z.low > 0 && x.low >= 0))) {
    // x is a multiple of y plus z.
    const Integer step = std::abs(y.low), rest = z.low;
    const Integer low = product(ceil_of(x.low - rest, step), step), high = product(floor_of(x.high - rest, step), step);
    narrow(x, {low + rest, high + rest});
    return;
  }
  if (z.fixed() && z.low == 0 && (x.low > 0 || x.high < 0)) narrow(y, {-magnitude(x), magnitude(x)});
  // A divisor is larger than its remainder.
  const Integer least = z.low > 0 ? z.low : z.high < 0 ? -z.high : 0;
  if (y.low > 0) y.low = std::max(y.low, least + 1);
  if (y.high < 0) y.high = std::min(y.high, -least - 1);
}

/// Narrows x and y for min(x, y) = z. max(x, y) = z is the same for the negatives.
void narrow_minimum(Range z, Range& x, Range& y) {
  x.low = std::max(x.low, z.low);
  y.low = std::max(y.low, z.low);
  if (y.low > z.high) x.high = std::min(x.high, z.high);
  if (x.low > z.high) y.high = std::min(y.high, z.high);
}

void narrow_different(Range& a, Range b) {
  if (!b.fixed()) return;
  if (a.low == b.low) ++a.low;
  if (a.high == b.low) --a.high;
}

/// Narrows a and b for a <= b - gap.
void narrow_order(Range& a, Range& b, Integer gap) {
  a.high = std::min(a.high, b.high - gap);
  b.low = std::max(b.low, a.low + gap);
}

void narrow_condition(Op op, bool holds, Range& a, Range& b) {
  switch (op) {
    case Op::equal:
    case Op::not_equal:
      if ((op == Op::equal) == holds) {
        narrow(a, b);
        narrow(b, a);
      } else {
        narrow_different(a, b);
        narrow_different(b, a);
      }
      return;
    case Op::less_equal:
      return holds ? narrow_order(a, b, 0) : narrow_order(b, a, 1);
    case Op::less:
      return holds ? narrow_order(a, b, 1) : narrow_order(b, a, 0);
    case Op::negation:
      return narrow(a, holds ? Range{0, 0} : Range{1, 1});
    case Op::conjunction:
    case Op::disjunction: {
      const bool both = (op == Op::conjunction) == holds;
      const Range same = holds ? Range{1, 1} : Range{0, 0};
      // Either both operands are determined, or the only one that is still open.
      const Integer other = holds ? 0 : 1;
      if (both || (b.fixed() && b.low == other)) narrow(a, same);
      if (both || (a.fixed() && a.low == other)) narrow(b, same);
      return;
    }
    default:
      return;
  }
}

}  // namespace

Range range_of(Op op, Range a, Range b, Range c) {
  switch (op) {
    case Op::add:
      return {clamped(a.low + b.low), clamped(a.high + b.high)};
    case Op::subtract:
      return {clamped(a.low - b.high), clamped(a.high - b.low)};
    case Op::multiply:
      if (a.low >= 0 && b.low >= 0) return {product(a.low, b.low), product(a.high, b.high)};
      return hull(product(a.low, b.low), product(a.low, b.high), product(a.high, b.low), product(a.high, b.high));
    case Op::divide:
      return quotient(a, b, [](Integer x, Integer y) { return x / y; });
    case Op::ceil_divide:
      return quotient(a, b, ceil_of);
    case Op::modulo:
      return remainder(a, b);
    case Op::minimum:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case Op::maximum:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case Op::select:
      if (a.fixed()) return a.low != 0 ? b : c;
      return {std::min(b.low, c.low), std::max(b.high, c.high)};
    case Op::equal:
      return truth(a.fixed() && b.fixed() && a.low == b.low, a.low <= b.high && b.low <= a.high);
    case Op::not_equal:
      return truth(a.high < b.low || b.high < a.low, !(a.fixed() && b.fixed() && a.low == b.low));
    case Op::less_equal:
      return truth(a.high <= b.low, a.low <= b.high);
    case Op::less:
      return truth(a.high < b.low, a.low < b.high);
    case Op::negation:
      return {1 - a.high, 1 - a.low};
    case Op::conjunction:
      return {a.low & b.low, a.high & b.high};
    case Op::disjunction:
      return {a.low | b.low, a.high | b.high};
    case Op::constant:
    case Op::variable:
    case Op::call:
      break;
  }
  return everything;
}

void narrow_operands(Op op, Range result, Range& a, Range& b, Range& c) {
  if (is_condition(op)) {
    if (result.fixed()) narrow_condition(op, result.low != 0, a, b);
    return;
  }
  switch (op) {
    case Op::add:
      narrow(a, {result.low - b.high, result.high - b.low});
      narrow(b, {result.low - a.high, result.high - a.low});
      return;
    case Op::subtract:
      narrow(a, {result.low + b.low, result.high + b.high});
      narrow(b, {a.low - result.high, a.high - result.low});
      return;
    case Op::multiply:
      narrow_factor(result, b, a);
      if (!a.empty()) narrow_factor(result, a, b);
      return;
    case Op::divide:
      return narrow_quotient(result, a, b);
    case Op::ceil_divide:
      return narrow_ceiling(result, a, b);
    case Op::modulo:
      return narrow_remainder(result, a, b);
    case Op::minimum:
      return narrow_minimum(result, a, b);
    case Op::maximum: {
      Range x = negative(a), y = negative(b);
      narrow_minimum(negative(result), x, y);
      a = negative(x);
      b = negative(y);
      return;
    }
    case Op::select:
      if (std::max(result.low, b.low) > std::min(result.high, b.high)) narrow(a, {0, 0});
      if (std::max(result.low, c.low) > std::min(result.high, c.high)) narrow(a, {1, 1});
      if (a.fixed()) narrow(a.low != 0 ? b : c, result);
      return;
    default:
      return;
  }
}

}  // namespace penstock::csp
