#include "tapes.h"

#include <utility>

namespace penstock::python {
namespace {

/// Copies numbers to the device and returns their address; null for null.
template <class T>
const T* copied_to(Stream& stream, Buffer& memory, const T* numbers, Index count) {
  if (numbers == nullptr) return nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  memory = Buffer(stream, bytes);
  memory.upload(numbers, bytes);
  return static_cast<const T*>(memory.data());
}

}  // namespace

Array CpuMemory::zeros(const Shape& shape, Scalar scalar) {
  Array array = empty(shape, scalar);
  std::memset(array.data(), 0, static_cast<std::size_t>(array.bytes()));
  return array;
}

void CpuMemory::fill(const Array& array, const Array& given) {
  const auto bytes = static_cast<std::size_t>(array.bytes());
  if (!given) {
    std::memset(array.data(), 0, bytes);
  } else if (given.data() != array.data()) {
    std::memmove(array.data(), given.data(), bytes);
  }
}

void DeviceMemory::fill(const DeviceArray& array, const DeviceArray& given) const {
  const DeviceArray from = given ? given : zeros(Shape(array.shape().begin(), array.shape().end()), array.scalar());
  if (from.data() != array.data()) stream_->copy(array.data(), from.data(), array.bytes());
}

DeviceArray DeviceMemory::zeros(const Shape& shape, Scalar scalar) const {
  DeviceArray array = empty(shape, scalar);
  array.clear();
  return array;
}

DeviceArray DeviceMemory::read_states(nb::handle object, const char* name, Scalar scalar) const {
  if (!nb::isinstance<nb::tuple>(object) && !nb::isinstance<nb::list>(object)) return read(object, name, scalar);
  std::vector<DeviceArray> states;
  for (const nb::handle state : object) {
    states.push_back(read(state, name, scalar).contiguous());
    states.back().require_shape(states.front().shape(), "of the first state");
  }
  if (states.empty()) refuse(std::string(name) + " must be an array or a tuple of arrays, not empty");
  Shape shape(states.front().shape().begin(), states.front().shape().end());
  shape.insert(shape.begin(), static_cast<Index>(states.size()));
  DeviceArray whole = DeviceArray::empty(stream_, shape, scalar);
  auto* to = whole.as<std::byte>();
  Wait copies(stream_);
  for (const DeviceArray& state : states) {
    stream_->copy(to, state.data(), state.bytes());
    to += state.bytes();
  }
  copies.now();
  return std::move(whole).named(name);
}

DeviceBatch::DeviceBatch(const std::shared_ptr<Stream>& stream, const Rows& rows) : batch_(rows.batch()) {
  if (!stream) return;
  batch_.lengths = copied_to(*stream, lengths_, batch_.lengths, batch_.rows);
  batch_.cu_seqlens = copied_to(*stream, cu_seqlens_, batch_.cu_seqlens, batch_.rows + 1);
  batch_.reset = copied_to(*stream, reset_, batch_.reset, rows.positions());
}

}  // namespace penstock::python
