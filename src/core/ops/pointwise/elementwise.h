#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cpu/machine.h"
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/op.h"
#include "penstock/recurrent.h"
#include "plan/cpu/pays_for_team.h"

/// The CPU's loops between the matrix products. Each value depends on its own position alone and sums run in a fixed
/// order, so results depend neither on the number of threads nor on the batch.
namespace penstock::ops {

/// Values that one thread should at least have, so that waking it pays.
inline constexpr Index grain_values = 16384;

/// Positions per partial sum of a gradient. Fixed, so that the order of a sum does not depend on the number of threads.
inline constexpr Index positions_per_part = 256;

constexpr Index gradient_parts(Index positions) { return (positions + positions_per_part - 1) / positions_per_part; }

/// Number of steps that row b has.
inline Index row_length(const Batch& batch, Index b) { return batch.lengths ? batch.lengths[b] : batch.steps; }

/// Returns the threads for `values` values: one where the planner estimates that a team does not pay.
inline int threads_for(int threads, Index values) {
  const double microseconds = static_cast<double>(values) * sizeof(float) / cpu::machine().costs.bytes;
  return plan::pays_for_team(microseconds) ? resolve_threads(threads) : 1;
}

/// body(begin, end) over parts of 0..count-1 that hold `width` values each. Allocates nothing.
template <class Body>
void for_range(int threads, Index count, Index width, const Body& body) {
  const Index each = std::max<Index>(width, 1);
  parallel_for(threads_for(threads, count * each), count, grain_values / each + 1, body);
}

/// body(position, b, t) for every position of the batch, those beyond a row's length included.
template <class Body>
void for_positions(int threads, const Batch& batch, Index width, const Body& body) {
  for_range(threads, batch.rows * batch.steps, width, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) body(r, r / batch.steps, r % batch.steps);
  });
}

/// Sum of term(i) for i in 0..n-1, in eight running sums of fixed places: the compiler turns them into a vector without
/// being allowed to reorder anything.
template <class Sum, class Term>
Sum fixed_sum(Index n, Term term) {
  constexpr Index lanes = 8;
  Sum sums[lanes] = {};
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (Index lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  }
  for (Index lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/// y [rows, width] = `row` [width] in every row.
template <class Real>
void fill_rows(int threads, Index rows, Index width, const Real* row, Real* y);

/// sums [width] += the sum over the rows of x [rows, width]; `partial` [gradient_parts(rows), width] is scratch.
template <class Real>
void add_column_sums(int threads, Index rows, Index width, const Real* x, Real* sums, Real* partial);

/// sums [width] = the sum over the rows.
template <class Real>
void column_sums(int threads, Index rows, Index width, const Real* x, Real* sums, Real* partial) {
  std::fill_n(sums, width, Real(0));
  add_column_sums(threads, rows, width, x, sums, partial);
}

/// Adds partial sums [parts, width], part by part, to sums [width].
template <class Real>
void add_partial_sums(Index parts, Index width, const Real* partial, Real* sums);

/// Returns whether all n values are finite.
template <class Real>
bool all_finite(int threads, Index n, const Real* x);

/// Values in one partial sum of squares.
inline constexpr Index squares_per_part = 16384;
constexpr Index square_parts(Index n) { return (n + squares_per_part - 1) / squares_per_part; }

/// Sum of x*x over n values, in double; `partial` [square_parts(n)] is scratch.
template <class Real>
double sum_of_squares(int threads, Index n, const Real* x, double* partial);

/// Returns what prepares an op: gpu(shape, target) on a GPU; on a CPU, what runs cpu(real, shape, call, memory), where
/// `real` is of the type of activations, with scratch memory for scratch(shape, target) of them.
template <class Shape, class Gpu, class Cpu>
auto prepared_by(const Shape& shape, Gpu gpu, Cpu cpu,
                 Index (*scratch)(const std::type_identity_t<Shape>&, const Target&) = nullptr) {
  return [=](const Target& target) -> std::unique_ptr<Executable> {
    if (target.device.is_cuda()) return gpu(shape, target);
    const auto numbers = static_cast<std::size_t>(scratch == nullptr ? 0 : scratch(shape, target));
    return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
      return simple([=](const Call& call, const Operands& memory) { cpu(real, shape, call, memory); },
                    numbers * sizeof real);
    });
  };
}

}  // namespace penstock::ops
