#pragma once

#include <array>
#include <functional>

#include "backend/cuda/driver/device.h"

namespace penstock::cuda {

/// Memory of the host that does not move, which the GPU copies from and to by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(Device& device, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A point in the work of a stream.
class Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(StreamHandle stream);
  /// Work that `stream` gets from now on comes after the point. The host waits for nothing.
  void hold_back(StreamHandle stream) const;
  /// The host waits until the point is passed.
  void synchronize() const;

 private:
  EventHandle handle_ = nullptr;
};

/// Chunks on their way through a GPU: while it works on one, the next is copied to it and the one before from it. Two
/// slots take turns, each with a stream and pinned memory; works run one after the other, in the order of the chunks,
/// so that they may hand a state on.
class Pipeline {
 public:
  using Fill = std::function<bool(void* input)>;
  using Work = std::function<void(DeviceAddress input, DeviceAddress output, StreamHandle stream)>;
  using Take = std::function<void(const void* output)>;

  /// Sizes of a chunk in bytes.
  Pipeline(Device& device, std::size_t input, std::size_t output);
  /// Runs until fill() returns that there is nothing more. An exception ends it, after waiting for work under way.
  void run(const Fill& fill, const Work& work, const Take& take);

 private:
  struct Slot {
    Slot(Device& device, std::size_t input, std::size_t output);

    Stream stream;
    PinnedMemory from, to;
    Buffer input, output;
    Event worked, done;
    bool busy = false;
  };

  void finish(Slot& slot, const Take& take);
  void start(Slot& slot, const Slot& before, const Work& work);

  std::array<Slot, 2> slots_;
};

}  // namespace penstock::cuda
