#pragma once

#include <string>

#include "bench/suite/suite.h"
#include "terminal/progress_line.h"

namespace penstock::cli {

/// How far a benchmark is, on standard error: one line that is redrawn on a terminal, a line for each case elsewhere.
class BenchProgress : public bench::Watcher {
 public:
  explicit BenchProgress(bool quiet) : quiet_(quiet), line_(quiet) {}

  void at(std::size_t done, std::size_t total, const std::string& what) override;
  bool stop() override;
  /// Leaves the terminal with a clean line.
  void finish() { line_.erase(); }

 private:
  bool quiet_;
  ProgressLine line_;
};

}  // namespace penstock::cli
