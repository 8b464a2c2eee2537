// minGRU and minLSTM where logits are so large or small that sigmoids underflow: shares, terms and gradients.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cells/host_cells.h"
#include "oracle/cells.h"

namespace penstock {
namespace {

using cells_on_host::assign;
using cells_on_host::number;
using cells_on_host::Single;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Answer {
  double h, dlogit[3], dh0;
};

/// One step from h0 and, for a gradient of 1 by h, what flows back.
template <class Cell, class V>
Answer answer_of(const std::vector<double>& logits, double h0) {
  V wx[Cell::gates], dwx[Cell::gates], a, b, before, one;
  for (int g = 0; g < Cell::gates; ++g) assign(wx[g], logits[g]);
  assign(before, h0);
  assign(one, 1.0);
  Cell::affine(wx, a, b);
  Cell::affine_backward(wx, before, one, dwx);
  Answer answer = {number(a * before + b), {}, number(a)};
  for (int g = 0; g < Cell::gates; ++g) answer.dlogit[g] = number(dwx[g]);
  return answer;
}

Answer answer_of_oracle(const char* cell, const std::vector<double>& logits, double h0) {
  oracle::Tape tape;
  oracle::Inputs<oracle::Var> inputs;
  for (const double logit : logits) inputs.wx.push_back({tape.leaf(logit)});
  const oracle::Var before = tape.leaf(h0);
  const oracle::Var h = oracle::find_cell<oracle::Var>(cell).step(inputs, {{before}})[0][0];
  const std::vector<double> adjoint = tape.sweep(h);
  Answer answer = {h.value(), {}, adjoint[before.node()]};
  for (std::size_t g = 0; g < logits.size(); ++g) answer.dlogit[g] = adjoint[inputs.wx[g][0].node()];
  return answer;
}

/// Pairs of logits from far below to far above what an exponential can hold.
std::vector<double> levels() {
  return {-1e6, -801, -800, -200, -100.5, -100, -90, -87.5, -40, -39, -21,
          -19,  -3,   -0.0, 0.7,  19,     40,   90,  200,   800, 1e6};
}

template <class Cell, class V>
void expect_as_oracle(double allowed) {
  for (const double f : levels()) {
    for (const double i : levels()) {
      for (const double candidate : {0.8, -1.7}) {
        const std::vector<double> logits = {f, i, candidate};
        const double h0 = -0.6;
        SCOPED_TRACE(testing::Message() << Cell::name << " f " << f << " i " << i << " candidate " << candidate);
        const Answer got = answer_of<Cell, V>(logits, h0), want = answer_of_oracle(Cell::name, logits, h0);
        EXPECT_NEAR(got.h, want.h, allowed);
        EXPECT_NEAR(got.dh0, want.dh0, allowed);
        for (int g = 0; g < 3; ++g) EXPECT_NEAR(got.dlogit[g], want.dlogit[g], allowed) << "gate " << g;
      }
    }
  }
}

TEST(MinLstm, SharesHoldWhereSigmoidsUnderflow) {
  using namespace cells_on_host;
  // A dozen roundings, none of them of a difference of larger numbers: logits are exact, values are below 4. A logit of
  // size l is wrong by half a unit in its last place once it is shifted.
  expect_as_oracle<MinLstm, double>(16 * 0x1p-52);
  expect_as_oracle<MinLstmLog, double>(16 * 0x1p-52);
  expect_as_oracle<MinLstm, Single>(16 * 0x1p-23);
  expect_as_oracle<MinLstmLog, Single>(16 * 0x1p-23);
}

template <class Cell, class V>
void expect_infinite_logits_saturate() {
  const struct {
    double f, i, keep;
  } cases[] = {{infinity, infinity, 0.5},  {-infinity, -infinity, 0.5}, {infinity, -infinity, 1.0},
               {-infinity, infinity, 0.0}, {0.0, -infinity, 1.0},       {-infinity, 0.0, 0.0},
               {-500.0, -infinity, 1.0},   {-infinity, -500.0, 0.0}};
  for (const auto& [f, i, keep] : cases) {
    SCOPED_TRACE(testing::Message() << Cell::name << " f " << f << " i " << i);
    const Answer got = answer_of<Cell, V>({f, i, 0.25}, 1.0);
    // An empty share is one that underflows, below any other number's last digit.
    EXPECT_NEAR(got.dh0, keep, 1e-25);
    for (const double gradient : got.dlogit) EXPECT_TRUE(std::isfinite(gradient));
  }
}

TEST(MinLstm, InfiniteLogitsSaturate) {
  expect_infinite_logits_saturate<cells_on_host::MinLstm, double>();
  expect_infinite_logits_saturate<cells_on_host::MinLstm, Single>();
}

template <class Cell, class V>
void expect_nan_gets_through() {
  for (int bad = 0; bad < Cell::gates; ++bad) {
    std::vector<double> logits = {0.3, -0.2, 0.5};
    logits[bad] = std::nan("");
    EXPECT_TRUE(std::isnan(answer_of<Cell, V>(logits, 1.0).h)) << Cell::name << " gate " << bad;
  }
}

TEST(Minimal, NanGetsThrough) {
  using namespace cells_on_host;
  expect_nan_gets_through<MinGru, double>();
  expect_nan_gets_through<MinGruLog, double>();
  expect_nan_gets_through<MinLstm, double>();
  expect_nan_gets_through<MinLstmLog, double>();
  expect_nan_gets_through<MinGru, Single>();
  expect_nan_gets_through<MinGruLog, Single>();
  expect_nan_gets_through<MinLstm, Single>();
  expect_nan_gets_through<MinLstmLog, Single>();
}

}  // namespace
}  // namespace penstock
