#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace penstock::cli {

/// A line on standard error that is redrawn in place: on a terminal only, and only once work takes a while.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet = false);
  /// Leaves the terminal with a clean line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether it is time to draw. At most ten times a second.
  bool due();
  void draw(const std::string& text);
  double seconds() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_, drawn_ = false;
  Clock::time_point started_ = Clock::now(), drawn_at_ = started_;
};

/// How much of a file has been read, as a bar.
class ReadProgress {
 public:
  /// `total` bytes; 0 if nobody knows.
  explicit ReadProgress(std::uint64_t total);
  void add(std::uint64_t bytes);

 private:
  void draw();

  std::uint64_t total_, done_ = 0;
  bool utf8_;
  ProgressLine line_;
};

}  // namespace penstock::cli
