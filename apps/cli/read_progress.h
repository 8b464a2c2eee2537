#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::cli {

/// How much of a file has been read, as a bar on standard error that is redrawn in place: on a terminal only, and only
/// once reading takes a while.
class ReadProgress {
 public:
  /// `total` bytes; 0 if nobody knows.
  explicit ReadProgress(std::uint64_t total);
  /// Leaves the terminal with a clean line.
  ~ReadProgress();
  ReadProgress(const ReadProgress&) = delete;
  ReadProgress& operator=(const ReadProgress&) = delete;

  void add(std::uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double seconds);

  std::uint64_t total_, done_ = 0;
  bool shown_, utf8_, drawn_ = false;
  Clock::time_point started_ = Clock::now(), drawn_at_ = started_;
};

}  // namespace penstock::cli
