// Every cell of the list by itself, without an engine: one step and its gradients against the oracle, in both types.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "cells/host_cells.h"
#include "oracle/cells.h"

namespace penstock {
namespace {

using cells_on_host::assign;
using cells_on_host::number;
using cells_on_host::Single;

/// Arguments of one unit at a step. Its recurrent matrix is diagonal with ones, so R v + b of gate g is v + offset[g].
struct Arguments {
  std::vector<double> wx, offset, prev, dnext;
};

/// The states after the step, and gradients of sum(next * dnext).
struct Answer {
  std::vector<double> next, dwx, doffset, dprev;
};

Arguments draw(Random& random, int gates, int states) {
  // Drawn as floats, so that both types see the same numbers.
  const auto uniform = [&](double low, double high) { return static_cast<double>(float(random.uniform(low, high))); };
  Arguments arguments;
  for (int g = 0; g < gates; ++g)
    arguments.wx.push_back(uniform(-3.0, 3.0)), arguments.offset.push_back(uniform(-1, 1));
  for (int s = 0; s < states; ++s) {
    arguments.prev.push_back(s == 2 ? uniform(1.0, 2.0) : uniform(-1.0, 1.0));  // n of sLSTM is positive
    arguments.dnext.push_back(uniform(-1.0, 1.0));
  }
  return arguments;
}

Answer answer_of_oracle(const char* name, const Arguments& arguments) {
  using oracle::Var;
  oracle::Tape tape;
  const oracle::Cell<Var>& cell = oracle::find_cell<Var>(name);
  oracle::Inputs<Var> inputs;
  std::vector<Var> offset;
  oracle::State<Var> prev;
  for (const double x : arguments.wx) inputs.wx.push_back({tape.leaf(x)});
  for (const double x : arguments.offset) offset.push_back(tape.leaf(x));
  for (const double x : arguments.prev) prev.push_back({tape.leaf(x)});
  inputs.recurrent = [&](oracle::Index gate, const oracle::Vector<Var>& v) {
    return oracle::Vector<Var>{v[0] + offset[static_cast<std::size_t>(gate)]};
  };
  const oracle::State<Var> next = cell.step(inputs, prev);
  Answer answer;
  Var loss = 0.0;
  for (std::size_t s = 0; s < next.size(); ++s) {
    answer.next.push_back(next[s][0].value());
    loss += next[s][0] * Var(arguments.dnext[s]);
  }
  const std::vector<double> adjoint = tape.sweep(loss);
  const auto of = [&](const Var& x) { return adjoint[static_cast<std::size_t>(x.node())]; };
  for (const auto& x : inputs.wx) answer.dwx.push_back(of(x[0]));
  for (const Var& x : offset) answer.doffset.push_back(of(x));
  for (const auto& x : prev) answer.dprev.push_back(of(x[0]));
  return answer;
}

template <class V, std::size_t n>
void put(V (&to)[n], const std::vector<double>& from) {
  for (std::size_t i = 0; i < n; ++i) assign(to[i], from[i]);
}

template <class V, std::size_t n>
std::vector<double> take(const V (&from)[n]) {
  std::vector<double> to;
  for (const V& x : from) to.push_back(number(x));
  return to;
}

template <class Cell, class V>
Answer answer_of_scan(const Arguments& arguments) {
  V wx[Cell::gates], dwx[Cell::gates], prev[1], dnext[1], a, b;
  put(wx, arguments.wx), put(prev, arguments.prev), put(dnext, arguments.dnext);
  Cell::affine(wx, a, b);
  Cell::affine_backward(wx, dnext[0] * prev[0], dnext[0], dwx);
  return {{number(a * prev[0] + b)}, take(dwx), std::vector<double>(Cell::gates, 0.0), {number(a * dnext[0])}};
}

/// The engine's part for a diagonal recurrent matrix of ones: R v is v, and the gradient of v is the sum of drh.
template <class Cell, class V>
Answer answer_of_dense(const Arguments& arguments) {
  constexpr int first = [] {
    if constexpr (Cell::phases == 2) return Cell::first_gates;
    return Cell::gates;
  }();
  V wx[Cell::gates], rh[Cell::gates], dwx[Cell::gates], drh[Cell::gates], offset[Cell::gates];
  V prev[Cell::states], next[Cell::states], dnext[Cell::states], dprev[Cell::states], save[Cell::saved];
  put(wx, arguments.wx), put(offset, arguments.offset), put(prev, arguments.prev), put(dnext, arguments.dnext);
  for (int g = 0; g < first; ++g) rh[g] = prev[0] + offset[g];
  if constexpr (Cell::phases == 1) {
    Cell::forward(wx, rh, prev, next, save);
    Cell::backward(save, prev, dnext, dwx, drh, dprev);
  } else {
    V operand;
    Cell::forward_first(wx, rh, prev, operand, save);
    for (int g = first; g < Cell::gates; ++g) rh[g] = operand + offset[g];
    Cell::forward_second(wx, rh, prev, next, save);
    EXPECT_EQ(number(Cell::operand(save, prev)), number(operand));
    Cell::backward_second(save, prev, dnext, dwx, drh, dprev);
    V doperand = drh[first];
    for (int g = first + 1; g < Cell::gates; ++g) doperand = doperand + drh[g];
    Cell::backward_first(save, prev, doperand, dwx, drh, dprev);
  }
  for (int g = 0; g < first; ++g) dprev[0] = dprev[0] + drh[g];
  for (int g = 0; g < Cell::gates && !Cell::split_gradients; ++g) EXPECT_EQ(number(dwx[g]), number(drh[g]));
  return {take(next), take(dwx), take(drh), take(dprev)};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double allowed, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], allowed) << what << " " << i;
}

template <class Cell, class V>
void expect_as_oracle(double epsilon) {
  const oracle::Cell<double>& cell = oracle::find_cell<double>(Cell::name);
  ASSERT_EQ(cell.gates, Cell::gates);
  ASSERT_EQ(cell.states, Cell::states);
  ASSERT_EQ(cell.scan, Cell::scan);
  Random random(7);
  // Some thirty roundings, of terms that grow to about 10 in gradients of sLSTM's exponential gates.
  const double allowed = 300 * epsilon;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << Cell::name << (sizeof(V) == 4 ? " in float" : " in double") << ", " << trial);
    const Arguments arguments = draw(random, Cell::gates, Cell::states);
    const Answer want = answer_of_oracle(Cell::name, arguments);
    Answer got;
    if constexpr (Cell::scan) {
      got = answer_of_scan<Cell, V>(arguments);
    } else {
      got = answer_of_dense<Cell, V>(arguments);
    }
    expect_near(got.next, want.next, allowed, "state");
    expect_near(got.dwx, want.dwx, allowed, "gradient of logit");
    expect_near(got.doffset, want.doffset, allowed, "gradient of R h");
    expect_near(got.dprev, want.dprev, allowed, "gradient of state");
  }
}

template <class Cell>
void check() {
  expect_as_oracle<Cell, double>(0x1p-52);
  expect_as_oracle<Cell, Single>(0x1p-23);
}

TEST(List, EveryCellIsTheOraclesOne) {
  using namespace cells_on_host;
#define PENSTOCK_CHECK(Cell) check<Cell>();
  PENSTOCK_CELLS(PENSTOCK_CHECK)
#undef PENSTOCK_CHECK
}

/// Returns the largest |h| of 300 steps of large logits from a zero state.
template <class Cell>
double largest_output() {
  Random random(3);
  Arguments arguments = draw(random, Cell::gates, Cell::states);
  arguments.prev.assign(Cell::states, 0.0);
  double largest = 0.0;
  for (int step = 0; step < 300; ++step) {
    for (double& x : arguments.wx) x = random.uniform(-20.0, 20.0);
    arguments.prev = answer_of_dense<Cell, double>(arguments).next;
    largest = std::max(largest, std::abs(arguments.prev[0]));
  }
  return largest;
}

TEST(List, OutputsOfBoundedCellsStayWithinOne) {
  using namespace cells_on_host;
#define PENSTOCK_CHECK(Cell) EXPECT_EQ(largest_output<Cell>() <= 1.0, Cell::bounded) << Cell::name;
  PENSTOCK_DENSE_CELLS(PENSTOCK_CHECK)
#undef PENSTOCK_CHECK
}

/// Infinite logits of the gates in turn, for a state and a candidate that are finite: no NaN comes of them.
template <class Cell, class V>
void expect_limits() {
  const int candidate = Cell::gates - 1;
  for (int g = 0; g < candidate; ++g) {
    for (const double sign : {-1.0, 1.0}) {
      V wx[Cell::gates], a, b;
      for (V& x : wx) assign(x, 0.5);
      assign(wx[g], sign * INFINITY);
      Cell::affine(wx, a, b);
      EXPECT_TRUE(std::isfinite(number(a)) && std::isfinite(number(b))) << Cell::name << " gate " << g << " " << sign;
    }
  }
}

TEST(List, InfiniteLogitsOfGatesAreShutOrOpenOnes) {
  using namespace cells_on_host;
#define PENSTOCK_CHECK(Cell) expect_limits<Cell, double>(), expect_limits<Cell, Single>();
  PENSTOCK_SCAN_CELLS(PENSTOCK_CHECK)
#undef PENSTOCK_CHECK
}

TEST(Slstm, AnEmptyStateIsNotReadAndHasNoGradient) {
  using namespace cells_on_host;
  const double wx[4] = {0.3, 2.0, -0.4, 0.7}, rh[4] = {0.1, 0.2, -0.3, 0.4}, dnext[4] = {1.0, 0.5, -0.25, 2.0};
  double first[4], next[4], save[5], dwx[4], drh[4], dprev[4];
  const double empty[4] = {};
  Slstm::forward(wx, rh, empty, first, save);
  const double prev[4] = {0.0, 3.0, 0.0, -5.0};
  Slstm::forward(wx, rh, prev, next, save);
  for (int s = 0; s < 4; ++s) EXPECT_EQ(next[s], first[s]) << "state " << s;
  Slstm::backward(save, prev, dnext, dwx, drh, dprev);
  for (int s = 0; s < 4; ++s) EXPECT_EQ(dprev[s], 0.0) << "state " << s;
  EXPECT_NE(dwx[0], 0.0);
  EXPECT_EQ(dwx[1], 0.0) << "the forget gate has nothing to forget";
}

}  // namespace
}  // namespace penstock
