#include "base/threads.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/denormals.h"
#include "base/environment.h"
#include "base/team_limit.h"
#include "base/warning.h"

namespace penstock {
namespace {

using Clock = TeamLimit::Clock;
/// Time that this thread has waited at barriers for threads that were far behind.
thread_local Clock::duration waited_at_barriers{};

/// OpenMP 5's omp_pause_resource_all(), which ends the threads that OpenMP keeps for the calling thread; its next team
/// starts new ones, some ten microseconds each. It is looked up and not linked, because the process may have brought an
/// older library under the same name (tools/one_openmp.py), which then has to serve as well.
using PauseAll = int (*)(int);
const PauseAll pause_all = reinterpret_cast<PauseAll>(dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));

void end_idle_threads() {
  constexpr int soft = 1;  // omp_pause_soft
  if (pause_all != nullptr) pause_all(soft);
}

/// True if the threads of OpenMP's teams stayed behind in the parent process.
bool left_threads_behind = false;
void say_what_was_left() { left_threads_behind = pause_all == nullptr; }

// A child of fork() has none of the threads of its parent. GNU's OpenMP does not know that: the child's first team
// would wait for them forever. So they end before each fork, and parent and child both start new ones when they need
// them. Registered when the library is loaded, since other users of the same OpenMP leave such threads behind, too.
[[maybe_unused]] const int before_forks = pthread_atfork(end_idle_threads, nullptr, say_what_was_left);

// ThreadSanitizer sees neither how GNU's OpenMP starts a team nor how it waits for its members, and would take the
// caller's memory for shared without order. So it is told what OpenMP promises: what the caller did before comes before
// the body of each member, and that before what the caller does afterwards. It is told by two places in the team's own
// description, so that teams of different callers stay without order. Members read where that is, unseen, before they
// can be told.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#define PENSTOCK_UNSEEN __attribute__((no_sanitize("thread"), noinline))
void happens_before(void* what) { __tsan_release(what); }
void happens_after(void* what) { __tsan_acquire(what); }
#else
#define PENSTOCK_UNSEEN
void happens_before(void*) {}
void happens_after(void*) {}
#endif

struct Team {
  long begin = 0, end = 0;  // two places, or the end of one member would seem to come before the body of another
  int size;                 // of those who have something to do
  const std::function<void(int, int)>& body;
  DenormalMode mode = DenormalMode::of_this_thread();
  bool asks;  // for delays
  std::mutex guard;
  std::exception_ptr failure;
  TeamTimes times;

  void work(int thread, int members) {
    const WithDenormals as_the_caller(mode);
    try {
      body(thread, members);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!failure) failure = std::current_exception();
    }
  }

  void work_of_caller(int members) {
    const Clock::time_point before = Clock::now();
    waited_at_barriers = {};
    work(0, members);
    times.useful = Clock::now() - before - waited_at_barriers;
  }

  void report(int thread) {
    thread_local std::chrono::nanoseconds before{};
    const auto now = delay_of_this_thread(), delay = now - before;
    before = now;
    const std::lock_guard lock(guard);
    auto& slowest = thread == 0 ? times.caller_delayed : times.others_delayed;
    slowest = std::max(slowest, delay);
  }
};

/// A nested or limited OpenMP may grant fewer threads than asked for, so the size that was granted is announced.
void join_team(Team& team) {
  happens_after(&team.begin);
  const int thread = omp_get_thread_num(), members = std::min(team.size, omp_get_num_threads());
  if (thread == 0) {
    team.work_of_caller(members);
  } else if (thread < members) {
    team.work(thread, members);
  }
  if (team.asks) team.report(thread);
  happens_before(&team.end);
}

PENSTOCK_UNSEEN void run_team_of(Team& team, int threads) {
#pragma omp parallel num_threads(threads)
  join_team(team);
}

/// OpenMP's variable for runtimes that adjust teams to the load of the machine.
bool adjusts_teams() {
  static const char* const asked_for = environment("OMP_DYNAMIC");
  static const bool adjusts = asked_for == nullptr || strcasecmp(asked_for, "false") != 0;
  return adjusts;
}

}  // namespace

namespace detail {

// GNU's OpenMP ends the threads that a smaller team than the last one has no use for, and starts others for the next
// larger one, at some twenty microseconds each. So every team is as large as the largest that its caller has had, as
// far as there are cores, and those who are not wanted have nothing to do.
void run_parallel(int team, const std::function<void(int, int)>& body) {
  thread_local int largest = 1;
  thread_local TeamLimit team_limit;
  const Clock::time_point begin = Clock::now();
  const int granted = adjusts_teams() ? team_limit.granted(team, begin) : team;
  if (granted == 1) return body(0, 1);
  largest = granted < team ? granted : std::max(largest, team);  // nobody waits for those who have nothing to do
  const int kept = std::max(granted, std::min(largest, default_threads()));
  if (left_threads_behind && kept > 1) {
    fail(ErrorCode::unsupported,
         "a child of fork() cannot compute on {} threads with this OpenMP library, which is older than OpenMP 5: ask "
         "for "
         "one thread, or start the process anew (in Python, multiprocessing's \"spawn\")",
         team);
  }
  Team all{.size = granted,
           .body = body,
           .asks = adjusts_teams() && team_limit.wants_report(),
           .guard = {},
           .failure = {},
           .times = {}};
  happens_before(&all.begin);
  run_team_of(all, kept);
  happens_after(&all.end);
  const Clock::time_point end = Clock::now();
  all.times.all = end - begin;
  if (adjusts_teams() && !team_limit.record(granted, all.times, all.asks, end)) {
    warn(
        "other programs use the processors, so that threads wait for each other: fewer than {} are used meanwhile "
        "(OMP_DYNAMIC=false keeps all)",
        team);
  }
  if (all.failure) std::rethrow_exception(all.failure);
}

}  // namespace detail

void SpinBarrier::wait() {
  const unsigned round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  constexpr int patience = 4096;
  for (int spins = 0; spins < patience; ++spins) {
    if (round_.load(std::memory_order_acquire) != round) return;
  }
  const Clock::time_point before = Clock::now();
  while (round_.load(std::memory_order_acquire) == round) std::this_thread::yield();
  waited_at_barriers += Clock::now() - before;
}

}  // namespace penstock
