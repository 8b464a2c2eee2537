// Cells pass on broken numbers: a NaN among their arguments reaches the output, since training finds broken weights by
// it.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cells/host_cells.h"

namespace penstock {
namespace {

using cells_on_host::assign;
using cells_on_host::number;
using cells_on_host::Single;

template <class V, int n>
void fill(V (&values)[n], double x) {
  for (V& value : values) assign(value, x);
}

template <class V, int n>
void fill_from(V (&values)[n], int first, V x) {
  for (int i = first; i < n; ++i) values[i] = x;
}

/// The output of one step of a dense cell whose argument `bad` (of the 2 G in wx and rh) is `x`, all others ordinary.
template <class Cell, class V>
double output_with(int bad, double x) {
  V wx[Cell::gates], rh[Cell::gates], prev[Cell::states], next[Cell::states], save[Cell::saved];
  fill(wx, 0.4), fill(rh, -0.3), fill(prev, 0.6);
  assign(bad < Cell::gates ? wx[bad] : rh[bad - Cell::gates], x);
  if constexpr (Cell::phases == 1) {
    Cell::forward(wx, rh, prev, next, save);
  } else {
    V operand;
    Cell::forward_first(wx, rh, prev, operand, save);
    // The second phase reads products with the operand in its gates of R h.
    if (bad % Cell::gates < Cell::first_gates) fill_from(rh, Cell::first_gates, operand);
    Cell::forward_second(wx, rh, prev, next, save);
  }
  return number(next[0]);
}

template <class Cell>
void expect_nan_gets_through() {
  for (int bad = 0; bad < 2 * Cell::gates; ++bad) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(output_with<Cell, double>(bad, nan))) << Cell::name << " in double, argument " << bad;
    EXPECT_TRUE(std::isnan(output_with<Cell, Single>(bad, nan))) << Cell::name << " in float, argument " << bad;
    EXPECT_TRUE(std::isfinite(output_with<Cell, double>(bad, 0.5))) << Cell::name;
  }
}

TEST(DenseCells, NanGetsThrough) {
  using namespace cells_on_host;
#define PENSTOCK_CHECK(Cell) expect_nan_gets_through<Cell>();
  PENSTOCK_DENSE_CELLS(PENSTOCK_CHECK)
#undef PENSTOCK_CHECK
}

}  // namespace
}  // namespace penstock
