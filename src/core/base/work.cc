#include "penstock/work.h"

#include <utility>

namespace penstock {

namespace {
thread_local const Work* latest_work = nullptr;
}  // namespace

Work::Work(const char* what, Index parts) noexcept
    : what_(what), parts_(parts), before_(std::exchange(latest_work, this)) {}
Work::~Work() { latest_work = before_; }

const Work* Work::of_this_thread() noexcept { return latest_work; }

}  // namespace penstock
