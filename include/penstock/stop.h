#pragma once

#include <atomic>
#include <chrono>
#include <functional>

/// Interrupting long work, such as reading a large table.
namespace penstock {

/// Lets others interrupt work on this thread. While the object lives, stop_if_asked() on this thread, and on threads
/// that the work starts, throws when asked.
class Stoppable {
 public:
  /// Work stops once `*asked` is true. Null: never.
  explicit Stoppable(const std::atomic<bool>* asked) noexcept;
  /// Work stops once `ask` returns true. stop_if_asked() calls it on this thread, at most twenty times a second.
  explicit Stoppable(std::function<bool()> ask);
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

  /// Returns the flag that interrupts the work of this thread, to hand it to other threads; null: none.
  static const std::atomic<bool>* of_this_thread() noexcept;

 private:
  friend void stop_if_asked();
  using Clock = std::chrono::steady_clock;
  bool is_asked();

  std::atomic<bool> own_ = false;  // last answer of `ask_`
  const std::atomic<bool>* asked_;
  std::function<bool()> ask_;
  Clock::time_point next_;  // next time to call `ask_`
  Stoppable* before_;
};

/// Throws Error(interrupted) if the innermost Stoppable of this thread was asked to stop. Takes some nanoseconds.
void stop_if_asked();

/// Runs `work`. Returns false if Error(interrupted) ended it.
bool completes(const std::function<void()>& work);

}  // namespace penstock
