#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "arrays.h"

/// Arrays in the memory of a GPU: those of other libraries, given by DLPack or `__cuda_array_interface__`, and results.
/// Nothing is copied unless stated.
namespace penstock::python {

/// Returns the device of an array that DLPack or `__cuda_array_interface__` describes. Returns no device for arrays
/// with the buffer protocol and for objects that are no arrays. Throws Error(invalid_argument), which names the
/// argument, for devices that are neither a CPU nor an NVIDIA GPU.
std::optional<Device> device_of(nb::handle object, const char* name);

/// Returns the device on which a call with this array computes in place: the array's own, if it is a GPU. None: the
/// call works in CPU memory. For tests, `copied` treats an array of DLPack on the CPU like one on a GPU.
std::optional<Device> place_of(nb::handle object, const char* name, bool copied);

/// A view of an array on the device of a stream. It keeps the memory alive.
///
/// Calls wait for their results, so other streams may use the memory of a result at once. Other libraries may use an
/// exported array in any stream. Penstock waits for the whole device before it uses or frees such memory again.
class DeviceArray {
 public:
  /// No array.
  DeviceArray() = default;
  /// Views an array of this type on the stream's device. Work of the stream then waits for the work that has written
  /// it. `writable`: the array is an output. Throws Error(invalid_argument) or TypeError, which name the argument.
  DeviceArray(nb::handle object, const char* name, Scalar scalar, const std::shared_ptr<Stream>& stream,
              bool writable = false);
  /// Returns a new uninitialised array.
  static DeviceArray empty(const std::shared_ptr<Stream>& stream, std::span<const Index> shape, Scalar scalar);

  explicit operator bool() const { return stream_ != nullptr; }
  const char* name() const { return name_; }
  Scalar scalar() const { return scalar_; }
  Device device() const { return stream_->device(); }
  std::span<const Index> shape() const { return shape_; }
  /// Returns the stride of an axis in elements.
  Index stride(std::size_t axis) const { return strides_[axis]; }
  Index size() const;
  std::size_t bytes() const;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  /// Returns this array under the name of an argument.
  DeviceArray named(const char* name) &&;
  /// Sets all numbers of a new array to zero, in the order of the stream.
  void clear();
  /// Throws Error(invalid_argument) unless channels are contiguous and the other strides are positive.
  DeviceArray with_whole_rows() &&;
  /// Throws Error(invalid_argument) unless the array has no gaps.
  DeviceArray contiguous() &&;
  void require_shape(std::span<const Index> wanted, const char* axes) const;

  /// Returns a Python object of this array; None for no array.
  nb::object object() const;
  /// Returns a copy in CPU memory, a NumPy array; of bf16 in floats.
  nb::object numpy() const;
  /// Returns the view [i] along the first axis.
  DeviceArray entry(Index i) const;
  /// Returns a capsule of DLPack that keeps `self`, the Python object of this array, alive.
  nb::object capsule(nb::handle self) const;
  /// Returns the dictionary of `__cuda_array_interface__`.
  nb::dict interface() const;

 private:
  struct Memory;

  nb::object widened() const;
  void import_dlpack(nb::handle object, bool writable);
  void import_interface(nb::handle object, bool writable);
  void check_device(Device given) const;
  /// Takes the type of that name. Throws TypeError if it is another than wanted.
  void check_type(const std::string& given);
  /// Waits for work of others on memory that was exported.
  void settle() const;

  const char* name_ = "";
  Scalar scalar_ = Scalar::f32;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Memory> memory_;  // of results
  std::shared_ptr<void> owner_;     // of others' arrays
  void* data_ = nullptr;
  Shape shape_, strides_;
};

/// Returns false: the library itself refuses an `out` that overlaps an `x` on a GPU.
inline bool share_memory(const DeviceArray&, const DeviceArray&) { return false; }

}  // namespace penstock::python
