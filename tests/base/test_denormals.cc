// Denormal numbers count as zeros where that was asked for, on every thread of a team.

#include "base/denormals.h"

#include <gtest/gtest.h>

#include <atomic>
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
