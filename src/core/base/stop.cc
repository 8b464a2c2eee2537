#include "penstock/stop.h"

#include <utility>

#include "base/check.h"

namespace penstock {

namespace {
thread_local Stoppable* innermost = nullptr;
constexpr auto between_questions = std::chrono::milliseconds(50);
}  // namespace

Stoppable::Stoppable(const std::atomic<bool>* asked) noexcept
    : asked_(asked), before_(std::exchange(innermost, this)) {}
Stoppable::Stoppable(std::function<bool()> ask)
    : asked_(&own_),
      ask_(std::move(ask)),
      next_(Clock::now() + between_questions),
      before_(std::exchange(innermost, this)) {}
Stoppable::~Stoppable() { innermost = before_; }

const std::atomic<bool>* Stoppable::of_this_thread() noexcept {
  return innermost == nullptr ? nullptr : innermost->asked_;
}

bool Stoppable::is_asked() {
  if (asked_ == nullptr || *asked_) return asked_ != nullptr;
  if (!ask_) return false;
  const auto now = Clock::now();
  if (now < next_) return false;
  next_ = now + between_questions;
  return own_ = ask_();
}

void stop_if_asked() {
  if (innermost != nullptr && innermost->is_asked()) fail(ErrorCode::interrupted, "interrupted");
}

bool completes(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted) throw;
    return false;
  }
}

}  // namespace penstock
