// Operators that ask something of elements, or choose by the answer.

#include <cmath>
#include <cstring>

#include "network/preparation.h"

namespace penstock::network {

namespace {

enum Condition : int { kEqual, kGreater, kGreaterOrEqual, kLess, kLessOrEqual, kAnd, kOr, kXor };

template <class T>
bool holds(int condition, T a, T b) {
  switch (condition) {
    case kEqual:
      return a == b;
    case kGreater:
      return a > b;
    case kGreaterOrEqual:
      return a >= b;
    case kLess:
      return a < b;
    case kLessOrEqual:
      return a <= b;
    case kAnd:
      return a != 0 && b != 0;
    case kOr:
      return a != 0 || b != 0;
    default:
      return (a != 0) != (b != 0);
  }
}

void run_condition(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  const std::byte *a = step.read(0, memory), *b = step.read(1, memory);
  const StridedLoop& loop = step.loops[0];
  loop.rows([&](const StridedLoop::Strides& at) {
    std::byte* y = step.write(0, memory) + at[0];
    for (Index i = 0; i < loop.inner(); ++i) {
      const Index of_a = at[1] + i * loop.inner_stride(1), of_b = at[2] + i * loop.inner_stride(2);
      const bool value = is_real(type) ? holds(step.variant, real_at(type, a, of_a), real_at(type, b, of_b))
                                       : holds(step.variant, integer_at(type, a, of_a), integer_at(type, b, of_b));
      y[i] = static_cast<std::byte>(value);
    }
  });
}

Status prepare_condition(Preparation& p) {
  PENSTOCK_TRY(p.same_types(0, 2));
  if (p.variant() >= kAnd) PENSTOCK_TRY(p.only(0, {Type::boolean}));
  Shape shape;
  PENSTOCK_TRY(p.broadcast_reads(0, 2, shape));
  PENSTOCK_TRY(p.write(0, Type::boolean, shape));
  Step& step = p.run(&run_condition);
  step.variant = p.variant();
  step.loops = {broadcast_loop(shape, p.shape(0), p.shape(1))};
  return {};
}

enum Test : int { kNot, kIsNaN, kIsInf };

void run_test(const Step& step, const Memory& memory) {
  for (Index i = 0; i < step.n[0]; ++i) {
    const double x = real_at(step.read_type(0), step.read(0, memory), i);
    const bool infinite = (x > 0 && step.n[2] != 0 && std::isinf(x)) || (x < 0 && step.n[1] != 0 && std::isinf(x));
    const bool value = step.variant == kNot ? x == 0 : step.variant == kIsNaN ? x != x : infinite;
    step.write(0, memory)[i] = static_cast<std::byte>(value);
  }
}

Status prepare_test(Preparation& p) {
  if (p.variant() == kNot) PENSTOCK_TRY(p.only(0, {Type::boolean}));
  PENSTOCK_TRY(p.write(0, Type::boolean, p.shape(0)));
  Step& step = p.run(&run_test);
  step.variant = p.variant();
  step.n = {p.count(0), p.integer("detect_negative", 1), p.integer("detect_positive", 1)};
  return {};
}

void run_where(const Step& step, const Memory& memory) {
  const auto size = static_cast<Index>(size_of(step.write_type(0)));
  const std::byte* condition = step.read(0, memory);
  const StridedLoop& loop = step.loops[0];
  // One condition for a row copies all of it: streams choose between a first state and the last so.
  const bool is_whole = loop.inner_stride(1) == 0 && loop.inner_stride(2) == 1 && loop.inner_stride(3) == 1;
  const Index together = is_whole ? loop.inner() : 1;
  loop.rows([&](const StridedLoop::Strides& at) {
    for (Index i = 0; i < loop.inner(); i += together) {
      const bool first = condition[at[1] + i * loop.inner_stride(1)] != std::byte{};
      const Index from = first ? at[2] + i * loop.inner_stride(2) : at[3] + i * loop.inner_stride(3);
      std::memcpy(step.write(0, memory) + (at[0] + i) * size, step.read(first ? 1 : 2, memory) + from * size,
                  static_cast<std::size_t>(together * size));
    }
  });
}

Status prepare_where(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::boolean}));
  PENSTOCK_TRY(p.same_types(1, 3));
  Shape shape;
  PENSTOCK_TRY(p.broadcast_reads(0, 3, shape));
  PENSTOCK_TRY(p.write(0, p.type(1), shape));
  p.run(&run_where).loops = {broadcast_loop(shape, p.shape(0), p.shape(1), p.shape(2))};
  return {};
}

}  // namespace

Operators condition_operators() {
  static constexpr Operator operators[] = {
      {"Equal", prepare_condition, 2, 2, kEqual},
      {"Greater", prepare_condition, 2, 2, kGreater},
      {"GreaterOrEqual", prepare_condition, 2, 2, kGreaterOrEqual},
      {"Less", prepare_condition, 2, 2, kLess},
      {"LessOrEqual", prepare_condition, 2, 2, kLessOrEqual},
      {"And", prepare_condition, 2, 2, kAnd},
      {"Or", prepare_condition, 2, 2, kOr},
      {"Xor", prepare_condition, 2, 2, kXor},
      {"Not", prepare_test, 1, 1, kNot},
      {"IsNaN", prepare_test, 1, 1, kIsNaN},
      {"IsInf", prepare_test, 1, 1, kIsInf},
      {"Where", prepare_where, 3, 3},
  };
  return operators;
}

}  // namespace penstock::network
