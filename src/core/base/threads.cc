#include "base/threads.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>

#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/denormals.h"
#include "base/environment.h"

namespace penstock {
namespace {

constexpr int most_threads = 1024;

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
  std::mutex guard;
  std::exception_ptr failure;

  void work(int thread, int members) {
    const WithDenormals as_the_caller(mode);
    try {
      body(thread, members);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!failure) failure = std::current_exception();
    }
  }
};

/// A nested or limited OpenMP may grant fewer threads than asked for, so the size that was granted is announced.
void join_team(Team& team) {
  happens_after(&team.begin);
  const int thread = omp_get_thread_num(), members = std::min(team.size, omp_get_num_threads());
  if (thread < members) team.work(thread, members);
  happens_before(&team.end);
}

PENSTOCK_UNSEEN void run_team_of(Team& team, int threads) {
#pragma omp parallel num_threads(threads)
  join_team(team);
}

}  // namespace

int default_threads() {
  const int threads = omp_get_max_threads();
  if (threads >= 1 && threads <= most_threads) return threads;
  const char* asked_for = environment("OMP_NUM_THREADS");
  if (asked_for == nullptr) return most_threads;  // of a machine with more cores
  fail(ErrorCode::invalid_argument, "OMP_NUM_THREADS must be 1 to {}, not '{}': unset it for all cores", most_threads,
       asked_for);
}

int resolve_threads(int requested) {
  require(requested >= 0 && requested <= most_threads, "threads must be 0 (all cores) to {}, not {}", most_threads,
          requested);
  return requested == 0 ? default_threads() : requested;
}

namespace detail {

// GNU's OpenMP ends the threads that a smaller team than the last one has no use for, and starts others for the next
// larger one, at some twenty microseconds each. So every team is as large as the largest that its caller has had, as
// far as there are cores, and those who are not wanted have nothing to do.
void run_parallel(int team, const std::function<void(int, int)>& body) {
  thread_local int largest = 1;
  largest = std::max(largest, team);
  const int kept = std::max(team, std::min(largest, default_threads()));
  if (left_threads_behind && kept > 1) {
    fail(ErrorCode::unsupported,
         "a child of fork() cannot compute on {} threads with this OpenMP library, which is older than OpenMP 5: ask "
         "for "
         "one thread, or start the process anew (in Python, multiprocessing's \"spawn\")",
         team);
  }
  Team all{.size = team, .body = body, .guard = {}, .failure = {}};
  happens_before(&all.begin);
  run_team_of(all, kept);
  happens_after(&all.end);
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
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
    if (spins > 4096) std::this_thread::yield();
  }
}

}  // namespace penstock
