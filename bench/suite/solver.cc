#include "bench/suite/solver.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/free_memory.h"
#include "penstock/error.h"

namespace penstock::bench {

Solver::Solver(std::vector<Case> cases, std::uint64_t seed, std::size_t ahead)
    : cases_(std::move(cases)), seed_(seed), ahead_(ahead), free_bytes_(static_cast<double>(free_memory()) / 2.0) {}

Solver::~Solver() {
  stopped_ = true;  // futures wait for their threads
}

Solved Solver::next(const std::function<bool()>& stop) {
  if (pending_.empty()) start_next(std::launch::deferred);
  start_ahead();
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  while (first.solved.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout) {
    if (!stop()) continue;
    stopped_ = true;
    throw Error(ErrorCode::interrupted, "stopped while the oracle was asked");
  }
  return first.solved.get();
}

void Solver::start_next(std::launch how) {
  const Case& test = cases_.at(started_++);
  const auto solve_it = [this, test] {
    Solved solved{.problem = make_problem(test, seed_), .want = {}};
    solved.want = solve(solved.problem, [this] {
      if (stopped_) throw Error(ErrorCode::interrupted, "nobody waits for the oracle's answer any more");
    });
    return solved;
  };
  pending_.push_back({std::async(how, solve_it), memory_needed(test, 0)});
}

void Solver::start_ahead() {
  const auto bytes = [&] {
    double sum = 0.0;
    for (const Pending& pending : pending_) sum += pending.bytes;
    return sum;
  };
  while (started_ < cases_.size() && pending_.size() <= ahead_ && ahead_ > 0) {
    if (bytes() + memory_needed(cases_[started_], 0) > free_bytes_) return;
    start_next(std::launch::async);
  }
}

std::size_t solved_ahead(const std::string& device) {
  constexpr std::size_t most = 12;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return device == "cuda" ? std::min(most, cores * 3 / 4) : 0;
}

}  // namespace penstock::bench
