#pragma once

#include <atomic>
#include <functional>

#include "penstock/types.h"

namespace penstock {

/// Threads used when an Execution asks for 0: what OpenMP offers (OMP_NUM_THREADS, else the cores of this process).
int default_threads();

/// `requested` if positive (at most 1024), default_threads() for 0. Throws Error(invalid_argument) otherwise.
int resolve_threads(int requested);

/// Calls body(thread, team) once on each of `team` threads and waits; exceptions reach the caller.
void run_team(int team, const std::function<void(int thread, int team)>& body);

/// Calls body(begin, end) on contiguous parts of 0..count-1, each at least `grain` long, on up to `threads` threads.
void parallel_for(int threads, Index count, Index grain, const std::function<void(Index begin, Index end)>& body);

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
