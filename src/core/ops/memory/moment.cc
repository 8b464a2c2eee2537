#include "ops/memory/moment.h"

#include <chrono>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"

namespace penstock::ops {

struct Moment::Clock {
  using Steady = std::chrono::steady_clock;

  explicit Clock(bool on_gpu) {
    if (on_gpu) cuda::check(cuda::driver().event_create(&event, cuda::event_default), "making an event");
  }
  ~Clock() {
    if (event != nullptr) cuda::driver().event_destroy(event);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  cuda::EventHandle event = nullptr;
  Steady::time_point time;
};

Moment::Moment(Queue& queue) : queue_(&queue), clock_(std::make_unique<Clock>(queue.device().is_cuda())) {}
Moment::~Moment() = default;
Moment::Moment(Moment&&) noexcept = default;
Moment& Moment::operator=(Moment&&) noexcept = default;

void Moment::set() {
  if (clock_->event == nullptr) {
    clock_->time = Clock::Steady::now();
    return;
  }
  auto* const stream = static_cast<cuda::StreamHandle>(queue_->stream());
  cuda::check(cuda::driver().event_record(clock_->event, stream), "timing");
}

double Moment::since(const Moment& earlier) const {
  if (clock_->event == nullptr) return std::chrono::duration<double>(clock_->time - earlier.clock_->time).count();
  constexpr double milli = 1e-3;
  float milliseconds = 0;
  cuda::check(cuda::driver().event_synchronize(clock_->event), "timing");
  cuda::check(cuda::driver().event_elapsed(&milliseconds, earlier.clock_->event, clock_->event), "timing");
  return milli * static_cast<double>(milliseconds);
}

}  // namespace penstock::ops
