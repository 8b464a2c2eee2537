#pragma once

#include <algorithm>

#include "penstock/csp.h"

/// What an operation makes of values and of ranges, and what ranges of its result say of its operands.
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
  select,  ///< Of a (0 or 1), b if it is 1, c if it is 0.
  call,    ///< Of the function number a (Store::functions), whose arguments are nodes of its own list.
  // From here on the result is 0 or 1.
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

/// Beyond `largest` the result is beyond it too, on the same side.
inline Integer product(Integer a, Integer b) {
  Integer result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return (a < 0) == (b < 0) ? largest + 1 : -largest - 1;
  return clamped(result);
}

inline Integer floor_of(Integer a, Integer b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
inline Integer ceil_of(Integer a, Integer b) { return a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0); }

/// Divisors are not 0, and operands no larger than `largest`.
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

/// Bounds of the result for operands within their ranges, none of which is empty. Exact where all are single numbers.
/// Results beyond `largest` are reported as `largest` + 1 or its negative.
Range range_of(Op op, Range a, Range b, Range c);

/// Leaves out of the operands' ranges what cannot give a result within `result`; they may become empty.
void narrow_operands(Op op, Range result, Range& a, Range& b, Range& c);

inline void narrow(Range& a, Range to) {
  a.low = std::max(a.low, to.low);
  a.high = std::min(a.high, to.high);
}

}  // namespace penstock::csp
