#include "base/threads.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/denormals.h"

namespace penstock {
namespace {

/// OpenMP 5's omp_pause_resource_all(), which ends the threads that OpenMP keeps for the calling thread; its next team
/// starts new ones, some ten microseconds each. It is looked up and not linked, because the process may have brought an
/// older library under the same name (tools/one_openmp.py), which then has to serve as well.
using PauseAll = int (*)(int);
const PauseAll pause_all = reinterpret_cast<PauseAll>(dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));

void end_idle_threads() {
  constexpr int soft = 1;  // omp_pause_soft
  if (pause_all != nullptr) pause_all(soft);
}

/// Whether the threads of OpenMP's teams have stayed behind in another process.
bool left_threads_behind = false;
void say_what_was_left() { left_threads_behind = pause_all == nullptr; }

// A child of fork() has none of the threads of its parent. GNU's OpenMP does not know that: the child's first team
// would wait for them forever. So they end before each fork, and parent and child both start new ones when they need
// them. Registered when the library is loaded, since other users of the same OpenMP leave such threads behind, too.
[[maybe_unused]] const int before_forks = pthread_atfork(end_idle_threads, nullptr, say_what_was_left);

}  // namespace

int default_threads() { return omp_get_max_threads(); }

int resolve_threads(int requested) {
  require(requested >= 0 && requested <= 1024, "threads must be 0 (all cores) to 1024, not {}", requested);
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
  std::exception_ptr failure;
  std::mutex guard;
  const DenormalMode mode = DenormalMode::of_this_thread();
#pragma omp parallel num_threads(kept)
  {
    // A nested or limited OpenMP may grant fewer threads than asked for, so the size that was granted is announced.
    const int thread = omp_get_thread_num(), members = std::min(team, omp_get_num_threads());
    if (thread < members) {
      const WithDenormals as_the_caller(mode);
      try {
        body(thread, members);
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!failure) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
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
