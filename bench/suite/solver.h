#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <vector>

#include "bench/suite/problem.h"

namespace penstock::bench {

/// A case's numbers and the oracle's answer.
struct Solved {
  Problem problem;
  Answers<double> want;
};

/// Solves cases in their order, some of them ahead on threads of its own: the oracle takes a minute for a large layer,
/// which a GPU that is timed meanwhile does not notice. A CPU would: there nothing is solved before it is asked for.
class Solver {
 public:
  /// `ahead`: at most so many at once before they are asked for; fewer where memory is short.
  Solver(std::vector<Case> cases, std::uint64_t seed, std::size_t ahead);
  /// Waits no longer than a piece of a sequence takes for what nobody asks for any more.
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  /// The next of the cases. Throws what making or solving it threw, and Error(interrupted) once `stop()` says so.
  Solved next(const std::function<bool()>& stop = [] { return false; });

 private:
  struct Pending {
    std::future<Solved> solved;
    double bytes = 0.0;
  };
  void start_next(std::launch how);
  void start_ahead();

  std::vector<Case> cases_;
  std::uint64_t seed_;
  std::size_t ahead_, started_ = 0;
  double free_bytes_;
  std::atomic<bool> stopped_ = false;
  std::deque<Pending> pending_;
};

/// How many cases to solve ahead of those that are timed on a device.
std::size_t solved_ahead(const std::string& device);

}  // namespace penstock::bench
