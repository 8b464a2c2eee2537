// How many threads teams get where threads do not arrive in time.

#include "base/team_limit.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using std::chrono::milliseconds;

/// A caller whose teams want eight threads.
class Caller {
 public:
  /// Runs a team for 5 ms whose helpers come `late`, then lets `after` pass. Returns the team's size.
  int run(milliseconds late, milliseconds after = {}, milliseconds caller_delayed = {}) {
    constexpr milliseconds all{5};
    const int size = sizer_.granted(8, now_);
    if (size > 1) {
      late_ += late, caller_delayed_ += caller_delayed;
      const bool reports = sizer_.wants_report();
      const TeamTimes times{all, all - late, caller_delayed_, late_};
      quiet_ = sizer_.record(size, times, reports, now_ += all);
      if (reports) late_ = caller_delayed_ = {};
    }
    now_ += after;
    return size;
  }
  int run_many(int teams, milliseconds late, milliseconds caller_delayed = {}) {
    int size = 0;
    for (int i = 0; i < teams; ++i) size = run(late, {}, caller_delayed);
    return size;
  }
  bool quiet() const { return quiet_; }

 private:
  TeamLimit sizer_;
  TeamLimit::Clock::time_point now_{std::chrono::seconds(1)};
  milliseconds late_{}, caller_delayed_{};
  bool quiet_ = true;
};

TEST(TeamLimit, KeepsTeamsThatArriveInTime) {
  Caller caller;
  EXPECT_EQ(caller.run_many(1000, milliseconds(0)), 8);
  EXPECT_EQ(caller.run_many(1000, milliseconds(2)), 8) << "they compute more than they wait";
}

TEST(TeamLimit, ForgivesASingleDelay) {
  Caller caller;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(caller.run(milliseconds(5)), 8);
    EXPECT_EQ(caller.run_many(20, milliseconds(0)), 8);
  }
}

TEST(TeamLimit, HalvesTeamsThatAreLate) {
  Caller caller;
  EXPECT_EQ(caller.run_many(7, milliseconds(4)), 4);
  EXPECT_EQ(caller.run_many(8, milliseconds(4)), 2);
  EXPECT_EQ(caller.run_many(8, milliseconds(4)), 1);
}

TEST(TeamLimit, CountsTheCallersOwnDelayAsNoWork) {
  Caller caller;
  EXPECT_EQ(caller.run_many(8, milliseconds(2), milliseconds(2)), 4);
}

TEST(TeamLimit, TriesAgainAfterAPause) {
  Caller caller;
  EXPECT_EQ(caller.run_many(7, milliseconds(4)), 4);
  caller.run(milliseconds(0), milliseconds(200));
  EXPECT_EQ(caller.run_many(1000, milliseconds(0)), 8) << "the machine is idle again";
}

TEST(TeamLimit, SaysOnceTeamsWereLateThriceInARow) {
  Caller caller;
  int teams = 0;
  for (; caller.quiet(); ++teams) {
    ASSERT_LT(teams, 100);
    caller.run(milliseconds(4), milliseconds(20));
  }
  EXPECT_GT(teams, 12);
}

TEST(TeamLimit, KnowsTheDelayOfAThread) {
  const auto before = delay_of_this_thread();
  EXPECT_GE(before.count(), 0);
  EXPECT_GE(delay_of_this_thread(), before);
}

}  // namespace
}  // namespace penstock
