#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/train.h"
#include "terminal/progress_line.h"

namespace penstock::cli {

/// How the loss of a run is shown.
struct Measures {
  Task task = Task::language;
  std::string loss_name = "loss";  ///< "mse", "mae" or "loss" (cross-entropy)
  std::string unit = "B";          ///< Unit of throughput: "B" (bytes), "tokens", "rows", "time steps".
};

/// "2.113 bits/byte", "loss 0.412  acc 87.5 %", "mse 0.0312": the figures that matter for this task.
std::string shown_loss(const Measures& measures, double loss, double accuracy);

/// "1.24 MB/s", "15.2 k rows/s"
std::string shown_rate(const Measures& measures, double per_second);

/// Reports of a training run on standard error: a bar that is redrawn in place on a terminal, a line every few
/// seconds elsewhere, nothing but warnings with `quiet`.
class ProgressReport {
 public:
  ProgressReport(Measures measures, bool quiet);
  ~ProgressReport() { finish(); }
  ProgressReport(const ProgressReport&) = delete;
  ProgressReport& operator=(const ProgressReport&) = delete;

  void step(const Progress& progress);
  void validation(const Progress& progress, const Evaluation& evaluation);
  /// Returns the time steps (bytes, rows) per second over the whole run.
  double mean_rate() const { return seconds_ > 0.0 ? done_ / seconds_ : 0.0; }
  /// Returns the optimiser steps per second over the whole run.
  double step_rate() const { return seconds_ > 0.0 ? static_cast<double>(last_step_ - first_step_) / seconds_ : 0.0; }
  /// Prints the last line, and ends the bar: the next text starts on a fresh line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  /// A part of the report that is left out, the least important first, where the terminal is too narrow.
  struct Field {
    std::string text;
    int importance;
  };

  void measure(const Progress& progress);
  /// Returns whether the last line is old enough for another.
  bool is_due() const;
  std::vector<Field> fields(const Progress& progress) const;
  void draw_bar(const Progress& progress);
  void print_line(const Progress& progress);
  void print_or_keep(const Progress& progress);
  void warn(const Progress& progress);

  Measures measures_;
  bool quiet_;
  ProgressLine line_;
  // Shrinks to what there is room for, and then stays: a bar that breathes is hard to read.
  std::size_t bar_width_ = 1000;
  std::optional<Evaluation> validation_;
  double done_ = 0.0, seconds_ = 0.0;  // time steps in the seconds of this run, without those it resumes
  std::optional<double> last_seconds_;
  Index first_step_ = 0, last_step_ = 0;
  Clock::time_point started_ = Clock::now();
  Index skipped_ = 0, rollbacks_ = 0;
  std::map<std::string, Clock::time_point> warned_;  // by what was said, without its numbers
  std::optional<Clock::time_point> reported_;
  std::optional<Progress> last_;  // of the end of the run, where several reports come: only the last is printed
};

}  // namespace penstock::cli
