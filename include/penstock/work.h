#pragma once

#include <atomic>

#include "penstock/types.h"

/// Progress of long work, for programs that show it.
namespace penstock {

/// Work of many like parts. While the object lives, of_this_thread() returns it, so that the function that a Stoppable
/// asks can show how far it is.
class Work {
 public:
  /// `what` names the work, such as "choosing the linear forecast of column"; it must outlive the object.
  Work(const char* what, Index parts) noexcept;
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Counts a part that is done. Any thread may call this.
  void count() noexcept { ++done_; }

  const char* what() const noexcept { return what_; }
  Index parts() const noexcept { return parts_; }
  Index done() const noexcept { return done_; }

  /// Returns the innermost work of this thread; null: none.
  static const Work* of_this_thread() noexcept;

 private:
  const char* what_;
  Index parts_;
  std::atomic<Index> done_ = 0;
  const Work* before_;
};

}  // namespace penstock
