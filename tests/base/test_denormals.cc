// Denormal numbers: found where they are, and counted as zeros where that was asked for, on every thread of a team.

#include "base/denormals.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <vector>

#include "base/threads.h"

namespace penstock {
namespace {

constexpr float kDenormal = 1e-40f;

/// What this thread makes of a denormal number.
bool is_zero_here() {
  volatile float x = kDenormal;
  volatile float doubled = x + x;
  return doubled == 0.0f;
}

/// Whether there is such a mode on this processor.
bool can_be_zeros() {
  const WithDenormals as_zeros(DenormalMode::zeros());
  return is_zero_here();
}

TEST(Denormals, AreFound) {
  const float least = std::numeric_limits<float>::min();
  std::vector<float> values(37, 1.0f);
  values[5] = 0.0f, values[6] = -0.0f, values[7] = least, values[8] = std::numeric_limits<float>::infinity();
  values[9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(has_denormals(values.data(), 37));
  for (const Index at : {0, 17, 36}) {
    std::vector<float> one = values;
    one[static_cast<std::size_t>(at)] = at == 17 ? -kDenormal : kDenormal;
    EXPECT_TRUE(has_denormals(one.data(), 37)) << at;
  }
  EXPECT_FALSE(has_denormals(values.data(), 0));
  const double small = 1e-310, ordinary = 1e-300;
  EXPECT_TRUE(has_denormals(&small, 1));
  EXPECT_FALSE(has_denormals(&ordinary, 1));
}

TEST(Denormals, CountAsZerosWhileAsked) {
  if (!can_be_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  EXPECT_FALSE(is_zero_here());
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    EXPECT_TRUE(is_zero_here());
    const WithDenormals again(DenormalMode::zeros());
    EXPECT_TRUE(is_zero_here());
  }
  EXPECT_FALSE(is_zero_here());
}

TEST(Denormals, ATeamDoesAsItsCaller) {
  if (!can_be_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  const auto zeros = [] {
    std::atomic<int> count{0};
    run_team(3, [&](int, int) { count += is_zero_here() ? 1 : 0; });
    return count.load();
  };
  EXPECT_EQ(zeros(), 0);
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    EXPECT_EQ(zeros(), 3);
  }
  EXPECT_EQ(zeros(), 0);
}

}  // namespace
}  // namespace penstock
