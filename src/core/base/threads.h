#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/thread_count.h"
#include "penstock/types.h"

namespace penstock {

namespace detail {
void run_parallel(int team, const std::function<void(int thread, int team)>& body);
}

/// Calls body(thread, team) on `team` threads, or fewer if OpenMP or team_limit.h grants fewer, in the caller's mode
/// for denormals; exceptions reach the caller. With one thread it is a plain call: a step pays for no pool and no
/// memory.
template <class Body>
void run_team(int team, const Body& body) {
  if (team <= 1) {
    body(0, 1);
  } else {
    detail::run_parallel(team, std::cref(body));
  }
}

/// Calls body(begin, end) on contiguous parts of 0..count-1, each at least `grain` long, on up to `threads` threads.
template <class Body>
void parallel_for(int threads, Index count, Index grain, const Body& body) {
  if (count <= 0) return;
  const Index parts = std::clamp<Index>(count / std::max<Index>(grain, 1), 1, threads);
  run_team(static_cast<int>(parts), [&](int thread, int team) {
    const Index begin = count * thread / team;
    const Index end = count * (thread + 1) / team;
    if (begin < end) body(begin, end);
  });
}

/// A barrier for the few microseconds between two steps of a recurrence: waits by spinning, and yields the core when
/// that takes long (more threads than cores).
class SpinBarrier {
 public:
  explicit SpinBarrier(int team) : team_(team) {}
  void wait();

 private:
  const int team_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> round_{0};
};

}  // namespace penstock
