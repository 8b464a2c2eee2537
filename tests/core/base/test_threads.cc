// Teams, parallel loops and the barrier between two steps.

#include "base/threads.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/expect_error.h"

namespace penstock {
namespace {

TEST(Threads, CoverARangeExactlyOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const Index count : {0, 1, 2, 5, 100}) {
      for (const Index grain : {1, 3, 1000}) {
        std::vector<std::atomic<int>> seen(count);
        parallel_for(threads, count, grain, [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) ++seen[i];
        });
        for (const auto& times : seen) EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST(Threads, CarryExceptionsToTheCaller) {
  EXPECT_THROW(run_team(3, [](int, int) { throw std::runtime_error("inside"); }), std::runtime_error);
}

TEST(Threads, AreKeptForTeamsOfOtherSizes) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(4);  // as on a machine of so many cores
  std::set<std::thread::id> seen;
  std::mutex guard;
  for (int i = 0; i < 40; ++i) {
    for (const int wanted : {4, 2, 3}) {
      std::atomic<int> members{0};
      run_team(wanted, [&](int thread, int team) {
        EXPECT_LT(thread, team);
        EXPECT_EQ(team, wanted);
        ++members;
        const std::lock_guard lock(guard);
        seen.insert(std::this_thread::get_id());
      });
      EXPECT_EQ(members, wanted);
    }
  }
  omp_set_num_threads(before);
  EXPECT_EQ(seen.size(), 4u) << "threads that ended and began anew";
}

/// How many members a team of 3 has; 0 if it is not of 3 threads.
int members_of_a_team() {
  std::atomic<int> members{0};
  run_team(3, [&](int, int team) { members += team == 3 ? 1 : 0; });
  return members;
}

/// The exit status of a child of fork() that runs `body`, or of the alarm that ends it where it hangs.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Threads, WorkInAChildOfForkAndInItsParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a child whose threads get the numbers of its parent's";
#endif
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(members_of_a_team(), 3);
    const int status = status_of_child([] {
      if (members_of_a_team() != 3) return 1;
      return status_of_child([] { return members_of_a_team() == 3 ? 0 : 1; }) == 0 ? 0 : 2;
    });
    EXPECT_EQ(status, 0) << "14 is the alarm: the child waited for threads of its parent";
  }
  std::thread([] {
    EXPECT_EQ(members_of_a_team(), 3);
    EXPECT_EQ(status_of_child([] { return members_of_a_team() == 3 ? 0 : 1; }), 0) << "from another thread";
  }).join();
}

TEST(Threads, RefuseImpossibleCounts) {
  EXPECT_EQ(resolve_threads(3), 3);
  EXPECT_GE(resolve_threads(0), 1);
  test::expect_error(ErrorCode::invalid_argument, "threads must be 0 (all cores) to 1024, not -1",
                     [] { resolve_threads(-1); });
  test::expect_error(ErrorCode::invalid_argument, "not 100000", [] { resolve_threads(100000); });
}

TEST(Threads, BlameTheVariableThatAsksForTooMany) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1'215'752'191);  // what libgomp makes of the number below
  EXPECT_EQ(default_threads(), 1024) << "of a machine with more cores";
  ::setenv("OMP_NUM_THREADS", "99999999999", 1);
  test::expect_error(ErrorCode::invalid_argument, "OMP_NUM_THREADS must be 1 to 1024, not '99999999999': unset it",
                     [] { resolve_threads(0); });
  EXPECT_EQ(resolve_threads(2), 2);
  ::unsetenv("OMP_NUM_THREADS");
  omp_set_num_threads(before);
}

TEST(SpinBarrier, HoldsEveryMemberAtEveryStep) {
  constexpr int steps = 2000;
  constexpr int members = 3;
  std::vector<std::atomic<int>> arrivals(steps);
  SpinBarrier barrier(members);
  std::atomic<bool> early{false};
  run_team(members, [&](int, int team) {
    ASSERT_EQ(team, members);
    for (int step = 0; step < steps; ++step) {
      ++arrivals[step];
      barrier.wait();
      if (arrivals[step] != members) early = true;
    }
  });
  EXPECT_FALSE(early);
}

}  // namespace
}  // namespace penstock
