// Operators that make one number of many, along axes. What they go over is copied first, if need be, so that it lies
// in rows.

#include <algorithm>
#include <cmath>
#include <limits>

#include "network/preparation.h"
#include "network/rows.h"

namespace penstock::network {

namespace {

/// The function of a reduction, the loop it rests on, and what is done with the sum.
enum class Kind : int { sum, mean, max, min, product, l1, l2, sum_square, log_sum, log_sum_exp };

float reduce_row(Kind kind, const Kernels& kernels, Index n, const float* x) {
  switch (kind) {
    case Kind::sum:
      return kernels.reduce(Reduction::sum, n, x);
    case Kind::mean:
      return kernels.reduce(Reduction::sum, n, x) / static_cast<float>(n);
    case Kind::max:
      return kernels.reduce(Reduction::maximum, n, x);
    case Kind::min:
      return kernels.reduce(Reduction::minimum, n, x);
    case Kind::product:
      return kernels.reduce(Reduction::product, n, x);
    case Kind::l1:
      return kernels.reduce(Reduction::absolutes, n, x);
    case Kind::l2:
      return std::sqrt(kernels.reduce(Reduction::squares, n, x));
    case Kind::sum_square:
      return kernels.reduce(Reduction::squares, n, x);
    case Kind::log_sum:
      return std::log(kernels.reduce(Reduction::sum, n, x));
    case Kind::log_sum_exp: {
      const float largest = kernels.reduce(Reduction::maximum, n, x);
      const float shift = std::isfinite(largest) ? largest : 0.0f;
      return shift + std::log(kernels.exponentials(n, shift, x, nullptr));
    }
  }
  return 0;
}

/// n: rows, columns; loops[0]: a copy before it, if there is one.
void run_reduction(const Step& step, const Memory& memory) {
  const auto* x = reinterpret_cast<const float*>(rows_of(step, memory));
  float* y = step.result(0, memory);
  for (Index row = 0; row < step.n[0]; ++row) {
    y[row] = reduce_row(static_cast<Kind>(step.variant), memory.kernels, step.n[1], x + row * step.n[1]);
  }
}

template <class T>
T joined(Kind kind, T a, T b) {
  switch (kind) {
    case Kind::max:
      return std::max(a, b);
    case Kind::min:
      return std::min(a, b);
    case Kind::product:
      return a * b;
    case Kind::l1:
      return a + (b < 0 ? -b : b);
    case Kind::l2:
    case Kind::sum_square:
      return a + b * b;
    case Kind::log_sum_exp:
      return a + static_cast<T>(std::exp(static_cast<double>(b)));
    default:
      return a + b;
  }
}

double ended(Kind kind, double sum, double count) {
  if (kind == Kind::mean) return sum / count;
  if (kind == Kind::l2) return std::sqrt(sum);
  return kind == Kind::log_sum || kind == Kind::log_sum_exp ? std::log(sum) : sum;
}

/// Reduces elements of other types, one after the other.
void run_other_reduction(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  const auto kind = static_cast<Kind>(step.variant);
  const std::byte* x = rows_of(step, memory);
  const double infinity = std::numeric_limits<double>::infinity();
  const double start = kind == Kind::max ? -infinity : kind == Kind::min ? infinity : kind == Kind::product ? 1 : 0;
  constexpr Index most = std::numeric_limits<Index>::max();
  const Index lowest = type == Type::boolean ? 0 : -most - 1;
  const Index whole_start = kind == Kind::max ? lowest : kind == Kind::min ? most : kind == Kind::product ? 1 : 0;
  for (Index row = 0; row < step.n[0]; ++row) {
    double real = start;
    // Sums wrap around, as unsigned numbers do.
    Index whole = whole_start;
    for (Index i = row * step.n[1]; i < (row + 1) * step.n[1]; ++i) {
      const Index value = integer_at(type, x, i);
      if (is_real(type)) {
        real = joined(kind, real, real_at(type, x, i));
      } else if (kind == Kind::max || kind == Kind::min) {
        whole = joined(kind, whole, value);
      } else {
        whole = static_cast<Index>(joined(kind, static_cast<std::uint64_t>(whole),
                                          static_cast<std::uint64_t>(kind == Kind::l1 ? std::abs(value) : value)));
      }
    }
    const auto count = static_cast<double>(step.n[1]);
    if (is_real(type)) {
      set_real(type, step.write(0, memory), row, ended(kind, real, count));
    } else if (kind == Kind::sum || kind == Kind::max || kind == Kind::min || kind == Kind::product ||
               kind == Kind::l1 || kind == Kind::sum_square) {
      set_integer(type, step.write(0, memory), row, whole);
    } else {
      set_real(type, step.write(0, memory), row, ended(kind, static_cast<double>(whole), count));
    }
  }
}

Status prepare_reduction(Preparation& p) {
  std::vector<Index> axes;
  PENSTOCK_TRY(p.known_axes(1, p.rank(0), axes));
  const bool keeps = p.integer("keepdims", 1) != 0;
  if (axes.empty()) {
    if (p.integer("noop_with_empty_axes", 0) == 0) {
      for (Index i = 0; i < p.rank(0); ++i) axes.push_back(i);
    }
  }
  Shape shape;
  for (Index i = 0; i < p.rank(0); ++i) {
    const bool gone = std::ranges::find(axes, i) != axes.end();
    if (!gone || keeps) shape.push_back(gone ? 1 : p.shape(0)[i]);
  }
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  Step& step = p.run(p.type(0) == Type::f32 ? &run_reduction : &run_other_reduction);
  step.variant = p.variant();
  lay_in_rows(p, axes);
  return {};
}

/// n: rows, columns, 1 for the last of equals.
void run_extreme(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  const std::byte* x = rows_of(step, memory);
  for (Index row = 0; row < step.n[0]; ++row) {
    Index best = 0;
    for (Index i = 1; i < step.n[1]; ++i) {
      const double value = real_at(type, x, row * step.n[1] + i), so_far = real_at(type, x, row * step.n[1] + best);
      const bool better = step.variant != 0 ? value < so_far : value > so_far;
      if (better || (step.n[2] != 0 && value == so_far)) best = i;
    }
    set_integer(Type::i64, step.write(0, memory), row, best);
  }
}

Status prepare_extreme(Preparation& p) {
  Index axis = 0;
  PENSTOCK_TRY(p.axis(0, p.rank(0), axis));
  Shape shape = p.shape(0);
  if (shape[axis] == 0) return p.refuse("an axis without elements has no largest one");
  shape[axis] = 1;
  if (p.integer("keepdims", 1) == 0) shape.erase(shape.begin() + axis);
  PENSTOCK_TRY(p.write(0, Type::i64, shape));
  p.run(&run_extreme).variant = p.variant();
  lay_in_rows(p, {axis});
  p.step.n.push_back(p.integer("select_last_index", 0));
  return {};
}

constexpr int of(Kind kind) { return static_cast<int>(kind); }

}  // namespace

const std::byte* rows_of(const Step& step, const Memory& memory) {
  if (step.loops.empty()) return step.read(0, memory);
  auto* to = reinterpret_cast<std::byte*>(step.spare(memory));
  copy(step.loops[0], size_of(step.read_type(0)), step.read(0, memory), to);
  return to;
}

void lay_in_rows(Preparation& p, const std::vector<Index>& axes) {
  const Shape strides = strides_of(p.shape(0));
  StridedLoop loop;
  Index columns = 1, left = p.count(0);
  for (const bool inner : {false, true}) {
    for (Index i = 0; i < p.rank(0); ++i) {
      if ((std::ranges::find(axes, i) != axes.end()) != inner) continue;
      const Index extent = p.shape(0)[i];
      left = extent == 0 ? 0 : left / extent;
      loop.add(extent, {left, strides[i], 0, 0});
      if (inner) columns *= extent;
    }
  }
  Index rows = 1;
  for (Index i = 0; i < p.rank(0); ++i) rows *= std::ranges::find(axes, i) != axes.end() ? 1 : p.shape(0)[i];
  p.step.n = {rows, columns};
  if (loop.contiguous(2) || loop.empty()) return;
  p.step.loops = {loop};
  p.step.scratch_bytes = bytes_of(p.type(0), p.shape(0));
}

Operators reduction_operators() {
  static constexpr Operator operators[] = {
      {"ReduceSum", prepare_reduction, 1, 2, of(Kind::sum)},
      {"ReduceMean", prepare_reduction, 1, 2, of(Kind::mean)},
      {"ReduceMax", prepare_reduction, 1, 2, of(Kind::max)},
      {"ReduceMin", prepare_reduction, 1, 2, of(Kind::min)},
      {"ReduceProd", prepare_reduction, 1, 2, of(Kind::product)},
      {"ReduceL1", prepare_reduction, 1, 2, of(Kind::l1)},
      {"ReduceL2", prepare_reduction, 1, 2, of(Kind::l2)},
      {"ReduceSumSquare", prepare_reduction, 1, 2, of(Kind::sum_square)},
      {"ReduceLogSum", prepare_reduction, 1, 2, of(Kind::log_sum)},
      {"ReduceLogSumExp", prepare_reduction, 1, 2, of(Kind::log_sum_exp)},
      {"ArgMax", prepare_extreme, 1, 1, 0},
      {"ArgMin", prepare_extreme, 1, 1, 1},
  };
  return operators;
}

}  // namespace penstock::network
