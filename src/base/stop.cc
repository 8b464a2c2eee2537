#include "penstock/stop.h"

#include "base/check.h"

namespace penstock {

namespace {
thread_local const std::atomic<bool>* asked_to_stop = nullptr;
}

Stoppable::Stoppable(const std::atomic<bool>* asked) noexcept : before_(asked_to_stop) { asked_to_stop = asked; }
Stoppable::~Stoppable() { asked_to_stop = before_; }

const std::atomic<bool>* Stoppable::of_this_thread() noexcept { return asked_to_stop; }

void stop_if_asked() {
  if (asked_to_stop != nullptr && *asked_to_stop) fail(ErrorCode::interrupted, "interrupted");
}

}  // namespace penstock
