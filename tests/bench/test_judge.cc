// The comparison with the oracle: what it refuses and what it lets pass.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/timing.h"
#include "bench/suite/problem.h"

namespace penstock::bench {
namespace {

using testing::HasSubstr;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// The oracle's answers as somebody else would give them.
Answers<float> narrowed(const Answers<double>& exact) {
  Answers<float> answers{
      .y = {exact.y.begin(), exact.y.end()}, .dx = {exact.dx.begin(), exact.dx.end()}, .gradients = {}};
  for (const auto& [name, values] : exact.gradients) {
    answers.gradients.emplace_back(name, std::vector<float>(values.begin(), values.end()));
  }
  return answers;
}

class Judge : public testing::Test {
 protected:
  Problem problem = make_problem({.cell = "lstm", .shape = {2, 5, 3, 4}, .pass = Pass::training}, 1);
  Answers<double> want = solve(problem);
  Answers<float> got = narrowed(want);

  Verdict verdict(double slack = 0.0) const { return judge(problem, want, got, Extent::all, slack); }
};

TEST_F(Judge, RoundingIsRight) {
  EXPECT_TRUE(verdict().right) << verdict().complaint;
  EXPECT_GT(verdict().tolerance, 0.0);
  EXPECT_LT(verdict().error, 1e-6);
  EXPECT_EQ(verdict().complaint, "");
}

TEST_F(Judge, OneValueOffIsWrong) {
  got.y[3] += 1e-3f;
  EXPECT_FALSE(verdict().right);
  EXPECT_THAT(verdict().complaint, HasSubstr("y is off by 0.001"));
  EXPECT_TRUE(verdict(0.01).right);
}

TEST_F(Judge, EveryTensorCounts) {
  const Answers<float> right = got;
  got.dx[0] += 1.0f;
  EXPECT_THAT(verdict().complaint, HasSubstr("dx is off"));
  for (std::size_t k = 0; k < right.gradients.size(); ++k) {
    got = right;
    got.gradients[k].second.back() += 1.0f;
    EXPECT_THAT(verdict().complaint, HasSubstr("the gradient of " + right.gradients[k].first + " is off"));
    EXPECT_TRUE(judge(problem, want, got, Extent::without_weights).right);
  }
}

TEST_F(Judge, WhatIsMissingIsWrong) {
  const Answers<float> right = got;
  got.gradients.pop_back();
  EXPECT_THAT(verdict().complaint, HasSubstr("the gradient of bias_hh_l0 has 0 values instead of 16"));
  got = right;
  got.y.clear();
  EXPECT_THAT(verdict().complaint, HasSubstr("y has 0 values instead of 40"));
}

TEST_F(Judge, NotANumberIsWrongUnlessItIsDue) {
  got.y[7] = nan;
  EXPECT_FALSE(verdict().right);
  want.y[7] = nan;
  EXPECT_TRUE(verdict().right);
  want.y[7] = infinity;
  EXPECT_FALSE(verdict().right);
  got.y[7] = infinity;
  EXPECT_TRUE(verdict().right);
  got.y[7] = -infinity;
  EXPECT_FALSE(verdict().right);
}

TEST(JudgeOfKinks, OneCrossingChangesItsGradientsAndNoOutput) {
  const Problem problem = make_problem({.cell = "mingru-log", .shape = {1, 400, 3, 2}, .pass = Pass::training}, 1);
  const Answers<double> want = solve(problem);
  Answers<float> got = narrowed(want);
  const Answers<float> right = got;
  for (Index i = 0; i < 3; ++i) got.dx[30 + i] += 1.0f;                  // one step's
  for (Index i = 0; i < 3; ++i) got.gradients[0].second[6 + i] += 1.0f;  // one unit's
  got.gradients[1].second[2] += 1.0f;
  EXPECT_TRUE(judge(problem, want, got, Extent::all).right);
  for (int tensor = 0; tensor < 3; ++tensor) {
    got = right;
    std::vector<float>& values = tensor == 0 ? got.dx : got.gradients[static_cast<std::size_t>(tensor - 1)].second;
    for (std::size_t i = 0; i < (tensor == 2 ? 2 : 4); ++i) values[i] += 1.0f;
    EXPECT_FALSE(judge(problem, want, got, Extent::all).right) << tensor;
  }
  got = right;
  got.y[5] += 1.0f;
  EXPECT_FALSE(judge(problem, want, got, Extent::all).right);
}

TEST(Problems, FirstAndLastRowAreCompared) {
  const Problem problem = make_problem({.cell = "gru", .shape = {5, 2, 1, 2}, .pass = Pass::training}, 1);
  EXPECT_THAT(problem.rows, testing::ElementsAre(0, 4));
  EXPECT_THAT(problem.checked(), HasSubstr("all 2 steps of rows 0 and 4 of 5"));
  const std::vector<float> masked = problem.masked_dy();
  for (std::size_t i = 0; i < masked.size(); ++i) {
    EXPECT_EQ(masked[i], i / 4 == 0 || i / 4 == 4 ? problem.dy[i] : 0.0f) << i;
  }
}

TEST(Problems, MemoryGrowsWithTheShape) {
  const Case small{.shape = {1, 10, 4, 4}}, large{.shape = {1000000, 1000000, 4, 4}};
  EXPECT_GT(memory_needed(small, 1), 1000.0);
  EXPECT_LT(memory_needed(small, 1), 1e6);
  EXPECT_GT(memory_needed(large, 1), 1e13);
  EXPECT_GT(memory_needed(small, 3), memory_needed(small, 1));
  EXPECT_GT(memory_needed(small, 1, 1), memory_needed(small, 2));
}

TEST(Timing, SpreadIsOfTheSortedTimes) {
  const TimeSpread s = spread({5, 1, 4, 2, 3});
  EXPECT_EQ(s.minimum, 1);
  EXPECT_EQ(s.lower_quartile, 2);
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.upper_quartile, 4);
  EXPECT_EQ(s.maximum, 5);
  EXPECT_EQ(s.samples, 5);
  EXPECT_EQ(spread({}).samples, 0);
}

TEST(Timing, PercentilesAreOfTheSlowCalls) {
  std::vector<double> times(1001, 1.0);
  for (int slow = 0; slow < 11; ++slow) times[static_cast<std::size_t>(slow) * 90] = 2.0;
  times[7] = 9.0;
  const TimeSpread s = spread(times);
  EXPECT_EQ(s.median, 1);
  EXPECT_EQ(s.percentile_99, 2);
  EXPECT_EQ(s.percentile_999, 2);
  EXPECT_EQ(s.maximum, 9);
}

TEST(Timing, ShortCallsAreGroupedAndLongOnesCountAlone) {
  long calls = 0;
  const std::vector<double> times = time_calls(1e-3, [&] { ++calls; });
  EXPECT_GT(calls, 10 * static_cast<long>(times.size()));
  for (const double time : times) EXPECT_LT(time, 1e-5);
  calls = 0;
  const std::vector<double> each = time_calls(
      1e-3, [&] { ++calls; }, true);
  EXPECT_EQ(calls, static_cast<long>(each.size()) + 2) << "but the two calls that warm up";
  calls = 0;
  EXPECT_EQ(time_calls(1e-12, [&] { ++calls; }).size(), 1u);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace penstock::bench
