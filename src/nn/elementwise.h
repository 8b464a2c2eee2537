#pragma once

#include <algorithm>

#include "base/threads.h"
#include "nn/arena.h"
#include "penstock/types.h"

/// The loops between the matrix products. Each value depends on its own row alone and sums run in a fixed order, so
/// results depend neither on the number of threads nor on the batch.
namespace penstock::nn {

/// Values that one thread should at least have, so that waking it pays.
inline constexpr Index grain_values = 16384;

/// Rows per partial sum of a gradient. Fixed, so that the order of a sum does not depend on the number of threads.
inline constexpr Index rows_per_part = 256;

/// body(begin, end) over parts of 0..count-1 that hold `width` values each. Allocates nothing.
template <class Body>
void for_rows(const Execution& execution, Index count, Index width, const Body& body) {
  parallel_for(resolve_threads(execution.threads), count, grain_values / std::max<Index>(width, 1) + 1, body);
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
void fill_rows(const Execution& execution, Index rows, Index width, const Real* row, Real* y);

/// sums [width] += the sum over the rows of x [rows, width].
template <class Real>
void add_column_sums(const Execution& execution, Index rows, Index width, const Real* x, Real* sums, Arena& arena);

/// Adds partial sums [parts, width], part by part, to sums [width].
template <class Real>
void add_partial_sums(Index parts, Index width, const Real* partial, Real* sums);

/// y = a + b, n values; y may be a.
template <class Real>
void add(const Execution& execution, Index n, const Real* a, const Real* b, Real* y);

/// y [rows, F] = silu(g) * v of gv [rows, 2F], whose rows hold g [F] then v [F]. silu(x) = x sigmoid(x).
template <class Real>
void silu_gate(const Execution& execution, Index rows, Index inner, const Real* gv, Real* y);
/// dgv [rows, 2F] from dy [rows, F] and gv; dgv may be gv.
template <class Real>
void silu_gate_backward(const Execution& execution, Index rows, Index inner, const Real* gv, const Real* dy, Real* dgv);

/// Whether all n values are finite.
template <class Real>
bool all_finite(const Execution& execution, Index n, const Real* x);

/// Sum of x*x over n values, in double.
template <class Real>
double sum_of_squares(const Execution& execution, Index n, const Real* x, Arena& arena);

}  // namespace penstock::nn
