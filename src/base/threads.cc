#include "base/threads.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"

namespace penstock {

int default_threads() { return std::max(1, omp_get_max_threads()); }

int resolve_threads(int requested) {
  require(requested >= 0 && requested <= 1024, "threads must be 0 (all cores) to 1024, not {}", requested);
  return requested == 0 ? default_threads() : requested;
}

void run_team(int team, const std::function<void(int, int)>& body) {
  if (team <= 1) {
    body(0, 1);
    return;
  }
  std::exception_ptr failure;
  std::mutex guard;
  // A nested or limited OpenMP may grant fewer threads than asked for; the body must still run once per member, and
  // members may wait for each other, so the size that was granted is the size that is announced.
#pragma omp parallel num_threads(team)
  {
    try {
      body(omp_get_thread_num(), omp_get_num_threads());
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void parallel_for(int threads, Index count, Index grain, const std::function<void(Index, Index)>& body) {
  if (count <= 0) return;
  const Index parts = std::clamp<Index>(count / std::max<Index>(grain, 1), 1, threads);
  if (parts == 1) {
    body(0, count);
    return;
  }
  run_team(static_cast<int>(parts), [&](int thread, int team) {
    const Index begin = count * thread / team;
    const Index end = count * (thread + 1) / team;
    if (begin < end) body(begin, end);
  });
}

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
