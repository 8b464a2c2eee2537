#pragma once

#include <algorithm>

#include "penstock/csp.h"

/// Operations on values and on ranges, and propagation from the range of a result to those of the operands.
namespace penstock::csp {

enum class Op : unsigned char {
  constant,
  variable,
  add,
  subtract,
  multiply,
  divide,
  ceil_divide,
  modulo,
  minimum,
  maximum,
  select,  ///< b if a is 1, c if a is 0.
  call,    ///< Calls function number a of Store::functions, which lists the nodes of its arguments.
  // The following results are 0 or 1.
  equal,
  not_equal,
  less_equal,
  less,
  negation,
  conjunction,
  disjunction,
};

constexpr bool is_condition(Op op) { return op >= Op::equal; }

inline Integer clamped(Integer value) { return std::clamp(value, -largest - 1, largest + 1); }

/// Returns a * b. A product beyond `largest` saturates at `largest` + 1 or its negative.
inline Integer product(Integer a, Integer b) {
  Integer result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return (a < 0) == (b < 0) ? largest + 1 : -largest - 1;
  return clamped(result);
}

inline Integer floor_of(Integer a, Integer b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
inline Integer ceil_of(Integer a, Integer b) { return a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0); }

/// Returns the value of an operation. Divisors must not be 0, and operands must not exceed `largest`.
inline Integer value_of(Op op, Integer a, Integer b, Integer c) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::subtract:
      return a - b;
    case Op::multiply:
      return a * b;
    case Op::divide:
      return a / b;
    case Op::ceil_divide:
      return ceil_of(a, b);
    case Op::modulo:
      return a % b;
    case Op::minimum:
      return std::min(a, b);
    case Op::maximum:
      return std::max(a, b);
    case Op::select:
      return a != 0 ? b : c;
    case Op::equal:
      return a == b ? 1 : 0;
    case Op::not_equal:
      return a != b ? 1 : 0;
    case Op::less_equal:
      return a <= b ? 1 : 0;
    case Op::less:
      return a < b ? 1 : 0;
    case Op::negation:
      return 1 - a;
    case Op::conjunction:
      return a & b;
    case Op::disjunction:
      return a | b;
    case Op::constant:
    case Op::variable:
    case Op::call:
      break;
  }
  return 0;
}

/// Returns bounds of the result for operands within non-empty ranges. They are exact for single numbers. Results beyond
/// `largest` are reported as `largest` + 1 or its negative.
Range range_of(Op op, Range a, Range b, Range c);

/// Removes values from the ranges of the operands that cannot give a result within `result`. Ranges may become empty.
void narrow_operands(Op op, Range result, Range& a, Range& b, Range& c);

inline void narrow(Range& a, Range to) {
  a.low = std::max(a.low, to.low);
  a.high = std::min(a.high, to.high);
}

}  // namespace penstock::csp
