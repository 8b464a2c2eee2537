// The ops that layers are made of, each on a small example by hand. Their gradients: tests/core/nn/test_layers.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/explain.h"
#include "ops/training/saturation.h"
#include "support/expect_error.h"
#include "support/run_op.h"

namespace penstock::ops {
namespace {

using test::expect_error;
using test::reads;
using test::run_op;
using testing::ElementsAre;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Target in_double(Index rows, Index steps) { return {.dtype = DType::f64, .rows = rows, .steps = steps}; }

TEST(CausalConvolution, TapsReachBackInOrder) {
  const std::vector<double> weight = {1.0, 10.0, 100.0}, bias = {0.5}, x = {1, 2, 3, 4};
  std::vector<double> y(4), state = {7, 8};  // two steps ago, one step ago
  run_op(causal_convolution_forward({.width = 1, .taps = 3}), in_double(1, 4), {.batch = {.rows = 1, .steps = 4}},
         {reads(x), state.data(), reads(weight), reads(bias), y.data(), state.data()});
  EXPECT_THAT(y, ElementsAre(0.5 + 1 + 80 + 700, 0.5 + 2 + 10 + 800, 0.5 + 3 + 20 + 100, 0.5 + 4 + 30 + 200));
  EXPECT_THAT(state, ElementsAre(3, 4));
}

TEST(CausalConvolution, TheStateMayGoElsewhere) {
  const std::vector<double> weight = {1.0, 1.0, 1.0, 1.0}, bias = {0.0}, x = {1, 2}, state = {5, 6, 7};
  std::vector<double> y(2), state_out(3, nan);
  run_op(causal_convolution_forward({.width = 1, .taps = 4}), in_double(1, 2), {.batch = {.rows = 1, .steps = 2}},
         {reads(x), reads(state), reads(weight), reads(bias), y.data(), state_out.data()});
  EXPECT_THAT(y, ElementsAre(1 + 7 + 6 + 5, 2 + 1 + 7 + 6));
  EXPECT_THAT(state_out, ElementsAre(7, 1, 2));
}

TEST(ResidualNorm, DividesByTheRootMeanSquare) {
  const std::vector<float> x = {3.0f, 4.0f}, gain = {1.0f, 2.0f};
  std::vector<float> y(2), inverse(1);
  run_op(residual_norm_forward({.width = 2, .branch = false, .dropout = {}}), {}, {.batch = {.rows = 1, .steps = 1}},
         {reads(x), nullptr, reads(gain), y.data(), nullptr, inverse.data()});
  const double root = std::sqrt(12.5);
  EXPECT_NEAR(y[0], 3.0 / root, 1e-6);
  EXPECT_NEAR(y[1], 8.0 / root, 1e-6);
  EXPECT_NEAR(inverse[0], 1.0 / root, 1e-7);
}

TEST(ResidualNorm, TheSumMayBeWrittenOverEitherOfItsTerms) {
  const std::vector<double> x = {1, 2}, branch = {2, 2}, gain = {1, 1};
  for (const int over : {0, 1}) {
    std::vector<double> a = x, b = branch, y(2);
    run_op(residual_norm_forward({.width = 2, .branch = true, .dropout = {}}), in_double(1, 1),
           {.batch = {.rows = 1, .steps = 1}},
           {a.data(), b.data(), reads(gain), y.data(), over == 0 ? a.data() : b.data(), nullptr});
    EXPECT_THAT(over == 0 ? a : b, ElementsAre(3, 4));
    EXPECT_NEAR(y[0], 3.0 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(y[1], 4.0 / std::sqrt(12.5), 1e-6);
  }
}

TEST(Dropout, KeepsTheExpectedShareAndTheSameMaskInBackward) {
  constexpr Index n = 100000;
  const ResidualNorm shape{.width = 1, .branch = true, .dropout = {0.25, 3}};
  Target target = in_double(1, n);
  target.flags.set(CallFlag::training);
  Call call{.batch = {.rows = 1, .steps = n}, .seed = 5};
  const std::vector<double> zeros(n, 0.0), ones(n, 1.0), gain = {1.0};
  const auto sum_of = [&] {
    std::vector<double> normal(n), sum(n);
    run_op(residual_norm_forward(shape), target, call,
           {reads(zeros), reads(ones), reads(gain), normal.data(), sum.data(), nullptr});
    return sum;
  };
  // Where no gradient comes through the norm, that of the sum is that of the branch, but for the mask.
  const auto gradient_of_branch = [&] {
    std::vector<double> dgain(1), dx(n), dbranch(n), sums(1);
    run_op(residual_norm_backward(shape, true), target, call,
           {reads(ones), reads(ones), reads(gain), reads(zeros), reads(ones), dgain.data(), dx.data(), dbranch.data(),
            sums.data()});
    EXPECT_EQ(dx, ones);
    EXPECT_NEAR(sums[0], std::accumulate(dbranch.begin(), dbranch.end(), 0.0), 1e-9 * n);
    return dbranch;
  };
  const std::vector<double> y = sum_of(), d = gradient_of_branch();
  EXPECT_EQ(y, d);
  const double kept = static_cast<double>(std::ranges::count(y, 1.0 / 0.75));
  EXPECT_EQ(std::ranges::count(y, 0.0) + static_cast<long>(kept), n);
  EXPECT_NEAR(kept / n, 0.75, 0.007);  // five standard deviations
  call.seed = 6;
  EXPECT_NE(gradient_of_branch(), d);
  EXPECT_EQ(sum_of(), gradient_of_branch());
  target.flags.set(CallFlag::training, false);
  EXPECT_EQ(sum_of(), ones);
}

TEST(Dropout, OfASumIsThatOfTheBranchAlone) {
  constexpr Index n = 1009;
  const Dropout shape{0.25, 3};
  Target target = in_double(1, n);
  target.flags.set(CallFlag::training);
  const Call call{.batch = {.rows = 1, .steps = n}, .seed = 5};
  std::vector<double> x(n), branch(n), dropped(n), sum(n);
  for (Index i = 0; i < n; ++i) {
    x[i] = static_cast<double>(i);
    branch[i] = static_cast<double>(n - i);
  }
  run_op(dropout(1, shape), target, call, {reads(branch), dropped.data()});
  run_op(residual_sum(1, shape), target, call, {reads(x), reads(branch), sum.data()});
  for (Index i = 0; i < n; ++i) EXPECT_EQ(sum[i], x[i] + dropped[i]) << i;
  run_op(residual_sum(1, shape), target, call, {reads(x), branch.data(), branch.data()});
  EXPECT_EQ(branch, sum) << "written over the branch";
  target.flags.set(CallFlag::training, false);
  run_op(residual_sum(1, shape), target, call, {reads(x), reads(dropped), sum.data()});
  for (Index i = 0; i < n; ++i) EXPECT_EQ(sum[i], x[i] + dropped[i]) << i;
}

TEST(Dropout, SitesOfAModelHaveMasksOfTheirOwn) {
  const auto factors = [](std::uint64_t site) {
    std::vector<float> values(10000);
    DropoutFactors<float>({0.5, site}, 1).for_each(0, 10000, [&](Index i, float factor) {
      values[static_cast<std::size_t>(i)] = factor;
    });
    return values;
  };
  const std::vector<float> a = factors(0), b = factors(1);
  EXPECT_EQ(a, factors(0));
  int same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
  EXPECT_NEAR(same, 5000, 250);  // five standard deviations
}

TEST(SiluGate, FloatIsCloseToTheLibraryOverTheWholeRange) {
  std::vector<float> gate_value;
  for (double x = -100.0; x <= 100.0; x += 0.01) {
    gate_value.push_back(static_cast<float>(x));
    gate_value.push_back(1.0f);
  }
  const auto count = static_cast<Index>(gate_value.size()) / 2;
  std::vector<float> y(static_cast<std::size_t>(count));
  run_op(silu_gate_forward({.inner = 1}), {.steps = count}, {.batch = {.rows = 1, .steps = count}},
         {reads(gate_value), y.data()});
  for (Index i = 0; i < count; ++i) {
    const double x = gate_value[static_cast<std::size_t>(2 * i)];
    const double expected = x / (1.0 + std::exp(-x));
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], expected, 5e-7 * std::abs(expected) + 1e-35) << x;
  }
}

TEST(Embedding, LooksUpAddsAndRefuses) {
  const Embedding shape{.vocabulary = 3, .width = 2};
  std::vector<double> table(6);
  std::iota(table.begin(), table.end(), 0.0);
  const Index length = 2;
  const Target target = {.dtype = DType::f64, .rows = 1, .steps = 3, .flags = {CallFlag::lengths}};
  const Call call{.batch = {.rows = 1, .steps = 3, .lengths = &length}};
  std::vector<std::int32_t> tokens = {2, 2, 99};  // the last is padding
  std::vector<double> y(6, -1.0);
  const auto forward = [&] { run_op(embedding_forward(shape), target, call, {tokens.data(), table.data(), y.data()}); };
  forward();
  EXPECT_THAT(y, ElementsAre(4, 5, 4, 5, 0, 0));
  const std::vector<double> dy = {1, 2, 3, 4, 5, 6};
  std::vector<double> dtable(6, nan);
  run_op(embedding_backward(shape), target, call, {tokens.data(), reads(dy), dtable.data()});
  EXPECT_THAT(dtable, ElementsAre(0, 0, 0, 0, 4, 6));
  tokens[1] = 3;
  expect_error(ErrorCode::invalid_argument, "token 3 at row 0, step 1 is outside 0..2", forward);
}

TEST(Linear, AStepHasTheBitsOfASequenceInExactMode) {
  for (const Index inputs : {1, 2, 17, 33}) {
    constexpr Index outputs = 19, steps = 5;
    const Linear shape{.inputs = inputs, .outputs = outputs};
    std::vector<float> x, weight, bias;
    for (Index i = 0; i < steps * inputs; ++i) x.push_back(0.3f * static_cast<float>(std::sin(i)));
    for (Index i = 0; i < outputs * inputs; ++i) weight.push_back(static_cast<float>(std::cos(i)));
    for (Index i = 0; i < outputs; ++i) bias.push_back(0.1f * static_cast<float>(i));
    std::vector<float> whole(steps * outputs), step(outputs);
    run_op(linear_forward(shape), {.steps = steps, .execution = {.exact = true}},
           {.batch = {.rows = 1, .steps = steps}}, {reads(x), reads(weight), reads(bias), whole.data()});
    for (Index t = 0; t < steps; ++t) {
      run_op(linear_forward(shape), {.flags = {CallFlag::step}}, {.batch = {.rows = 1, .steps = 1}},
             {x.data() + t * inputs, reads(weight), reads(bias), step.data()});
      EXPECT_EQ(step, std::vector<float>(whole.begin() + t * outputs, whole.begin() + (t + 1) * outputs))
          << inputs << " inputs, step " << t;
    }
  }
}

TEST(Recurrence, ProblemsSayWhetherRowsStartAgainAtGivenStates) {
  Target target{.device = Device::cuda(), .rows = 4, .steps = 16};
  target.flags.set(CallFlag::reset);
  for (const Restarts restarts : {Restarts::zeros, Restarts::one, Restarts::rows, Restarts::steps}) {
    for (const bool backward : {false, true}) {
      const Recurrence scan{.cell = "mingru", .input = 8, .hidden = 16, .restarts = restarts};
      EXPECT_EQ(scan_problem(scan, backward, target).scan.restarts, restarts != Restarts::zeros);
      const Recurrence dense{.cell = "lstm", .input = 8, .hidden = 16, .restarts = restarts};
      EXPECT_EQ(dense_problem(dense, backward, target).restarts, restarts != Restarts::zeros);
    }
  }
}

TEST(Saturation, CountsWhatLiesAtTheBoundsAndLeavesPaddingOut) {
  const std::vector<Index> lengths = {2, 0, 1};
  const std::vector<double> y = {0.991, 0.5,   -1.0, 0.99,  //
                                 1.0,   1.0,   1.0,  1.0,   //
                                 -0.98, 0.999, 5.0,  nan};
  std::vector<std::int64_t> counts(2, -7);
  run_op(saturation(2), {.dtype = DType::f64, .rows = 3, .steps = 2, .flags = {CallFlag::lengths}},
         {.batch = {.rows = 3, .steps = 2, .lengths = lengths.data()}}, {reads(y), counts.data()});
  EXPECT_THAT(counts, ElementsAre(3, 6));
}

TEST(ClearPadding, PutsZerosBeyondEachRowsLength) {
  const std::vector<Index> lengths = {1, 0};
  const std::vector<double> x = {1, 2, nan, nan, nan, nan, nan, nan};
  std::vector<double> y(8, nan);
  run_op(clear_padding(2), {.dtype = DType::f64, .rows = 2, .steps = 2, .flags = {CallFlag::lengths}},
         {.batch = {.rows = 2, .steps = 2, .lengths = lengths.data()}}, {reads(x), y.data()});
  EXPECT_THAT(y, ElementsAre(1, 2, 0, 0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace penstock::ops
