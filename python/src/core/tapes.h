#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "sequences.h"

/// Memory of calls of a network, for arrays in CPU memory and for arrays in the memory of a device.
namespace penstock::python {

/// Makes and reads arrays in CPU memory.
struct CpuMemory {
  using Arrays = Array;

  static Array read(nb::handle object, const char* name, Scalar scalar) { return {object, name, scalar}; }
  /// Returns what `read` has to ask for in a sequence of a call that computes in `scalar`.
  static Scalar sequences(Scalar scalar) { return scalar; }
  /// Returns the type of the numbers of a sequence that was read.
  static Scalar type_of(const Array&, Scalar scalar) { return scalar; }
  /// Returns x [B, I] as a step takes it: on the CPU without gaps, on a GPU with any stride of B.
  static Array for_step(Array x) { return std::move(x).contiguous(); }
  /// Reads one array of all states, or a tuple with an array of each.
  static Array read_states(nb::handle object, const char* name, Scalar scalar) { return {object, name, scalar}; }
  static Array output(nb::handle object, const char* name, Scalar scalar) {
    return Array::output(object, name, scalar);
  }
  static Array empty(const Shape& shape, Scalar scalar) { return Array::empty(shape, scalar); }
  static Array zeros(const Shape& shape, Scalar scalar);
  /// Copies `given`, or zeros if it is none, to an array of the same size, which may be the same.
  static void fill(const Array& array, const Array& given);
  static void copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static std::shared_ptr<Stream> stream() { return nullptr; }
};

/// Makes and reads arrays in the memory of a stream's device.
class DeviceMemory {
 public:
  using Arrays = DeviceArray;

  explicit DeviceMemory(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}

  DeviceArray read(nb::handle object, const char* name, Scalar scalar) const { return {object, name, scalar, stream_}; }
  static Scalar sequences(Scalar scalar) { return scalar == Scalar::f32 ? Scalar::gpu_floats : scalar; }
  static Scalar type_of(const DeviceArray& array, Scalar) { return array.scalar(); }
  static DeviceArray for_step(DeviceArray x) { return std::move(x).with_whole_rows(); }
  /// A tuple is copied into one array.
  DeviceArray read_states(nb::handle object, const char* name, Scalar scalar) const;
  DeviceArray output(nb::handle object, const char* name, Scalar scalar) const {
    return {object, name, scalar, stream_, true};
  }
  DeviceArray empty(const Shape& shape, Scalar scalar) const { return DeviceArray::empty(stream_, shape, scalar); }
  DeviceArray zeros(const Shape& shape, Scalar scalar) const;
  void fill(const DeviceArray& array, const DeviceArray& given) const;
  void copy(void* to, const void* from, std::size_t bytes) const { stream_->copy(to, from, bytes); }
  const std::shared_ptr<Stream>& stream() const { return stream_; }

 private:
  std::shared_ptr<Stream> stream_;
};

/// Waits for a stream when it goes out of scope: the owners of arrays may reuse their memory as soon as a call returns,
/// also if it throws.
class Wait {
 public:
  explicit Wait(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~Wait() {
    try {
      now();
    } catch (const Error&) {
      // The call is failing already.
    }
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  void now() {
    if (const auto stream = std::move(stream_)) stream->synchronize();
  }

 private:
  std::shared_ptr<Stream> stream_;
};

/// Lengths, row offsets and resets in the memory of a stream's device.
class DeviceBatch {
 public:
  DeviceBatch() = default;
  /// Copies those of `rows`. Without a stream they stay where they are, and `rows` has to outlive this.
  DeviceBatch(const std::shared_ptr<Stream>& stream, const Rows& rows);
  const Batch& batch() const { return batch_; }

 private:
  Batch batch_;
  Buffer lengths_, cu_seqlens_, reset_;
};

/// A copy of the network on another device. Its weights are updated before the next call that needs them.
template <class Real>
struct DeviceCopy {
  /// `seed` draws the dropout masks.
  DeviceCopy(const RecurrentSpec& spec, Device device, std::uint64_t seed)
      : stream(std::make_shared<Stream>(device)), network(spec, *stream, seed) {}

  std::shared_ptr<Stream> stream;
  Recurrent<Real> network;
  bool is_current = false;
};

/// Saved values of a forward pass for the backward pass. One call at a time may use it (InUse); a second is refused.
template <class Real>
struct Tape {
  template <class Arrays>
  struct Sequences {
    Arrays x, y;
  };

  RecurrentTape<Real> content;
  std::unique_ptr<Rows> rows;
  Sequences<Array> on_cpu;           // of a call with arrays in CPU memory
  Sequences<DeviceArray> on_device;  // of any other
  DeviceBatch batch;
  std::vector<Real> some_x, some_y;  // values of both by which a change is noticed; of y if backward() reads it
  Execution execution;
  bool of_copy = false;  // the pass ran on a copy of the network
  std::atomic<bool> in_use = false;

  template <class Arrays>
  Sequences<Arrays>& sequences() {
    if constexpr (std::is_same_v<Arrays, Array>) {
      return on_cpu;
    } else {
      return on_device;
    }
  }

  void clear() {
    rows.reset();
    on_cpu = {};
    on_device = {};
  }

  class InUse {
   public:
    /// `tape` may be null. Throws Error(invalid_argument) while another call uses the tape.
    explicit InUse(Tape* tape) : tape_(tape) {
      if (tape != nullptr && tape->in_use.exchange(true)) {
        refuse("tape is in use by another call: give each thread a tape of its own");
      }
    }
    ~InUse() {
      if (tape_ != nullptr) tape_->in_use = false;
    }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    Tape* tape_;
  };
};

}  // namespace penstock::python
