#pragma once

#include <atomic>

/// How work that takes long, such as reading a large table, is ended by whoever waits for it.
namespace penstock {

/// As long as it lives, stop_if_asked() looks at `asked` on this thread, and on those that side_by_side() starts.
/// `asked` may be null: nobody can ask.
class Stoppable {
 public:
  explicit Stoppable(const std::atomic<bool>* asked) noexcept;
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

  static const std::atomic<bool>* of_this_thread() noexcept;

 private:
  const std::atomic<bool>* before_;
};

/// Throws Error(interrupted) once that is true. Takes some nanoseconds.
void stop_if_asked();

}  // namespace penstock
