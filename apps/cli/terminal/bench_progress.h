#pragma once

#include <chrono>
#include <string>

#include "bench/suite/suite.h"

namespace penstock::cli {

/// How far a benchmark is, on standard error: one line that is redrawn on a terminal, a line for each case elsewhere.
class BenchProgress : public bench::Watcher {
 public:
  explicit BenchProgress(bool quiet);
  ~BenchProgress() override;
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

  void at(std::size_t done, std::size_t total, const std::string& what) override;
  bool stop() override;
  /// Leaves the terminal with a clean line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_, utf8_, drawn_ = false;
  Clock::time_point started_ = Clock::now();
};

}  // namespace penstock::cli
