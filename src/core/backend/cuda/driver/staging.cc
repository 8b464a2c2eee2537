#include "backend/cuda/driver/staging.h"

#include <utility>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {

PinnedMemory::PinnedMemory(Device& device, std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  device.make_current();
  const Result result = driver().host_allocate(&data_, bytes, 0);
  if (result == result_out_of_memory) fail(ErrorCode::out_of_memory, "the host cannot pin {} MB", bytes >> 20);
  check(result, "pinning memory of the host");
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) driver().host_free(data_);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Event::Event(Device& device) {
  device.make_current();
  check(driver().event_create(&handle_, event_disable_timing), "making an event");
}
Event::~Event() { driver().event_destroy(handle_); }

void Event::record(StreamHandle stream) { check(driver().event_record(handle_, stream), "recording an event"); }
void Event::hold_back(StreamHandle stream) const {
  check(driver().stream_wait(stream, handle_, 0), "holding a stream back");
}
void Event::synchronize() const { check(driver().event_synchronize(handle_), "waiting for the GPU"); }

Pipeline::Slot::Slot(Device& device, std::size_t input_bytes, std::size_t output_bytes)
    : stream(device),
      from(device, input_bytes),
      to(device, output_bytes),
      input(stream, input_bytes),
      output(stream, output_bytes),
      worked(device),
      done(device) {}

Pipeline::Pipeline(Device& device, std::size_t input, std::size_t output)
    : slots_{Slot(device, input, output), Slot(device, input, output)} {}

void Pipeline::finish(Slot& slot, const Take& take) {
  if (!slot.busy) return;
  slot.done.synchronize();
  slot.busy = false;
  take(slot.to.data());
}

void Pipeline::start(Slot& slot, const Slot& before, const Work& work) {
  const StreamHandle stream = slot.stream.handle();
  slot.stream.device().make_current();
  slot.busy = true;
  if (slot.input.bytes() > 0) {
    check(driver().copy_to_device(slot.input.address(), slot.from.data(), slot.input.bytes(), stream),
          "copying to the GPU");
  }
  if (before.busy) before.worked.hold_back(stream);
  work(slot.input.address(), slot.output.address(), stream);
  slot.worked.record(stream);
  if (slot.output.bytes() > 0) {
    check(driver().copy_to_host(slot.to.data(), slot.output.address(), slot.output.bytes(), stream),
          "copying from the GPU");
  }
  slot.done.record(stream);
}

void Pipeline::run(const Fill& fill, const Work& work, const Take& take) {
  const Range range("penstock pipeline");
  std::size_t turn = 0;
  try {
    for (;; turn ^= 1) {
      // The slot's chunk of two turns ago is taken before its memory is filled again.
      finish(slots_[turn], take);
      if (!fill(slots_[turn].from.data())) break;
      start(slots_[turn], slots_[turn ^ 1], work);
    }
    finish(slots_[turn ^ 1], take);
  } catch (...) {
    for (Slot& slot : slots_) {
      driver().stream_synchronize(slot.stream.handle());
      slot.busy = false;
    }
    throw;
  }
}

}  // namespace penstock::cuda
