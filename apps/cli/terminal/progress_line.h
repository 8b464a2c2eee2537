#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "penstock/stop.h"

namespace penstock::cli {

/// A bar of `width` cells and its two edges; with block characters an eighth of a cell is the smallest step.
std::string bar(double fraction, std::size_t width);

/// A line on standard error that is redrawn in place: on a terminal only.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet = false);
  /// Leaves the terminal with a clean line.
  ~ProgressLine() { erase(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Returns whether there is a terminal to draw on.
  bool shown() const { return shown_; }
  /// Returns whether it is time to draw: once work takes a while, and at most ten times a second.
  bool due();
  void draw(const std::string& text);
  /// Draws a bar with a text behind it, which is cut where the terminal ends.
  void draw_bar(double fraction, const std::string& text);
  void erase();
  /// Leaves the line as it is; what follows starts on a fresh one.
  void end();
  double seconds() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_, drawn_ = false;
  Clock::time_point started_ = Clock::now(), drawn_at_ = started_;
};

/// Shows on a terminal that data are read and what is fitted to them, as long as it lives; otherwise it says what is
/// fitted to many columns. Signals end the program meanwhile.
class WorkProgress {
 public:
  explicit WorkProgress(std::string source, bool quiet = false);

 private:
  void show();

  std::string source_;
  bool quiet_;
  const char* said_ = nullptr;
  ProgressLine line_;
  Stoppable watched_;
};

/// How much of a file has been read, as a bar.
class ReadProgress {
 public:
  /// `total` bytes; 0 if nobody knows.
  explicit ReadProgress(std::uint64_t total) : total_(total) {}
  void add(std::uint64_t bytes);

 private:
  std::uint64_t total_, done_ = 0;
  ProgressLine line_;
};

}  // namespace penstock::cli
