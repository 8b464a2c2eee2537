#pragma once

#include <atomic>
#include <chrono>
#include <functional>

/// How work that takes long, such as reading a large table, is ended by whoever waits for it.
namespace penstock {

/// As long as it lives, stop_if_asked() looks at `asked` on this thread, and on those that side_by_side() starts.
/// `asked` may be null: nobody can ask.
class Stoppable {
 public:
  explicit Stoppable(const std::atomic<bool>* asked) noexcept;
  /// stop_if_asked() calls `ask` on this thread, at most twenty times a second; once it says true, all threads stop.
  explicit Stoppable(std::function<bool()> ask);
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

  static const std::atomic<bool>* of_this_thread() noexcept;

 private:
  friend void stop_if_asked();
  using Clock = std::chrono::steady_clock;
  bool is_asked();

  std::atomic<bool> own_ = false;  // what `ask_` has said
  const std::atomic<bool>* asked_;
  std::function<bool()> ask_;
  Clock::time_point next_;  // when `ask_` is called again
  Stoppable* before_;
};

/// Throws Error(interrupted) once that is true. Takes some nanoseconds.
void stop_if_asked();

}  // namespace penstock
