#include "ops/memory/host_copies.h"

#include <algorithm>

#include "ops/tensor_check.h"

namespace penstock::ops {
namespace {

std::size_t bytes_of(const Tensor& tensor) {
  return count_of({tensor.shape.data(), static_cast<std::size_t>(tensor.rank)}) * size_of(tensor.dtype);
}

bool lies_as(const Tensor& tensor, const Tensor& other) {
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(tensor.rank); ++axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != other.strides[axis]) return false;
  }
  return true;
}

/// Returns the copy of a tensor: without gaps, in the order in which the host has it if that has none either.
Tensor copy_of(const Tensor& host, void* data, Device device) {
  const Tensor copy = tensor_of(data, host.dtype, {host.shape.data(), static_cast<std::size_t>(host.rank)}, device);
  if (host.rank != 3 || lies_as(host, copy)) return copy;
  const Tensor steps_first = Tensor::time_first(data, host.dtype, host.shape[0], host.shape[1], host.shape[2], device);
  return lies_as(host, steps_first) ? steps_first : copy;
}

/// Calls visit(position, at) for every position of a sequence on the host, `at` bytes into memory of rows after rows.
template <class Visit>
void for_each_position(const Tensor& host, std::size_t position_bytes, const Visit& visit) {
  const auto last = static_cast<std::size_t>(host.rank) - 1;
  const SequenceStrides strides = strides_of(host);
  const Index steps = host.shape[last - 1], rows = host.rank == 2 ? 1 : host.shape[0];
  std::size_t at = 0;
  for (Index row = 0; row < rows; ++row) {
    for (Index step = 0; step < steps; ++step, at += position_bytes) {
      const Index offset = (row * strides.row + step * strides.step) * static_cast<Index>(size_of(host.dtype));
      visit(static_cast<std::byte*>(host.data) + offset, at);
    }
  }
}

std::size_t position_bytes_of(const Tensor& host) {
  return static_cast<std::size_t>(host.shape[static_cast<std::size_t>(host.rank) - 1]) * size_of(host.dtype);
}

}  // namespace

Tensor tensor_of(void* data, DType dtype, std::span<const Index> shape, Device device) {
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.device = device;
  tensor.rank = static_cast<int>(shape.size());
  Index stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
  }
  return tensor;
}

HostCall::HostCall(HostCopies& copies, Queue& queue, Batch& batch, Arrays arrays) : copies_(copies), queue_(queue) {
  const auto place = [&]<class T>(const T*& array, Buffer& buffer, Index count) {
    if (array == nullptr) return;
    if (arrays == Arrays::copied) put(buffer, array, static_cast<std::size_t>(count) * sizeof(T));
    array = static_cast<const T*>(buffer.data());
  };
  const Index positions = positions_of(batch);
  place(batch.lengths, copies.lengths, batch.rows);
  place(batch.cu_seqlens, copies.cu_seqlens, batch.rows + 1);
  place(batch.reset, copies.reset, positions);
}

void* HostCall::room(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(queue_, bytes);
  return buffer.data();
}

void HostCall::put(Buffer& buffer, const void* from, std::size_t bytes) {
  room(buffer, bytes);
  buffer.upload(from, bytes);
}

void HostCall::in(int slot, Tensor& tensor) {
  if (!tensor) return;
  const Tensor host = tensor;
  const std::size_t bytes = bytes_of(host), position = position_bytes_of(host);
  tensor = copy_of(host, room(of(slot), bytes), queue_.device());
  if (lies_as(host, tensor)) return of(slot).upload(host.data, bytes);
  copies_.gathered.resize(bytes);
  for_each_position(host, position, [&](const std::byte* from, std::size_t at) {
    std::copy_n(from, position, copies_.gathered.data() + at);
  });
  of(slot).upload(copies_.gathered.data(), bytes);
}

void HostCall::again(int slot, Tensor& tensor) {
  if (tensor) tensor = copy_of(tensor, of(slot).data(), queue_.device());
}

void HostCall::out(int slot, Tensor& tensor) {
  if (!tensor) return;
  written_.emplace_back(slot, tensor);
  tensor = copy_of(tensor, room(of(slot), bytes_of(tensor)), queue_.device());
}

void HostCall::fetch() {
  for (const auto& [slot, host] : written_) {
    const std::size_t bytes = bytes_of(host), position = position_bytes_of(host);
    const Buffer& buffer = of(slot);
    if (lies_as(host, copy_of(host, nullptr, {}))) {
      buffer.download(host.data, bytes);
      continue;
    }
    copies_.gathered.resize(bytes);
    buffer.download(copies_.gathered.data(), bytes);
    for_each_position(host, position, [&, from = copies_.gathered.data()](std::byte* to, std::size_t at) {
      std::copy_n(from + at, position, to);
    });
  }
}

}  // namespace penstock::ops
