// Denormal numbers: found where they are, and counted as zeros where that was asked for, on every thread of a team.

#include "base/denormals.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <limits>
#include <vector>

#include "base/threads.h"
#include "support/denormals.h"

namespace penstock {
namespace {

using test::can_count_denormals_as_zeros;
using test::counts_denormals_as_zeros;
using test::denormal;

TEST(Denormals, AreFound) {
  const float least = std::numeric_limits<float>::min();
  std::vector<float> values(37, 1.0f);
  values[5] = 0.0f, values[6] = -0.0f, values[7] = least, values[8] = std::numeric_limits<float>::infinity();
  values[9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(has_denormals(values.data(), 37));
  for (const Index at : {0, 17, 36}) {
    std::vector<float> one = values;
    one[static_cast<std::size_t>(at)] = at == 17 ? -denormal : denormal;
    EXPECT_TRUE(has_denormals(one.data(), 37)) << at;
  }
  EXPECT_FALSE(has_denormals(values.data(), 0));
  const double small = 1e-310, ordinary = 1e-300;
  EXPECT_TRUE(has_denormals(&small, 1));
  EXPECT_FALSE(has_denormals(&ordinary, 1));
}

TEST(Denormals, CountAsZerosWhileAsked) {
  if (!can_count_denormals_as_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  EXPECT_FALSE(counts_denormals_as_zeros());
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    EXPECT_TRUE(counts_denormals_as_zeros());
    const WithDenormals again(DenormalMode::zeros());
    EXPECT_TRUE(counts_denormals_as_zeros());
  }
  EXPECT_FALSE(counts_denormals_as_zeros());
}

#ifdef __GLIBC__
TEST(Denormals, RaiseNoSignalWhereTheCallerUnmaskedUnderflow) {
  if (!can_count_denormals_as_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  ASSERT_EQ(feenableexcept(FE_UNDERFLOW), 0);
  const DenormalMode before = DenormalMode::of_this_thread();
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    EXPECT_TRUE(counts_denormals_as_zeros());
    const WithDenormals again(DenormalMode::zeros());
    EXPECT_TRUE(counts_denormals_as_zeros());
  }
  EXPECT_EQ(DenormalMode::of_this_thread(), before);
  fedisableexcept(FE_UNDERFLOW);
  EXPECT_FALSE(counts_denormals_as_zeros());
}
#endif

TEST(Denormals, ATeamDoesAsItsCaller) {
  if (!can_count_denormals_as_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  const auto zeros = [] {
    std::atomic<int> count{0};
    run_team(3, [&](int, int) { count += counts_denormals_as_zeros() ? 1 : 0; });
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
