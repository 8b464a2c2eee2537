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

HostCall::HostCall(HostCopies& copies, Queue& queue, Batch& batch, std::size_t kept)
    : copies_(copies), queue_(queue), next_(kept) {
  const auto place = [&]<class T>(const T*& array, Buffer& buffer, Index count) {
    if (array == nullptr) return;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* const there = room(buffer, bytes);
    if (kept == 0) buffer.upload(array, bytes);
    array = static_cast<const T*>(there);
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

void HostCall::copy(Buffer& buffer, Tensor& tensor) {
  const Tensor host = tensor;
  const std::size_t bytes = bytes_of(host), position = position_bytes_of(host);
  tensor = copy_of(host, room(buffer, bytes), queue_.device());
  if (lies_as(host, tensor)) return buffer.upload(host.data, bytes);
  copies_.gathered.resize(bytes);
  for_each_position(host, position, [&](const std::byte* from, std::size_t at) {
    std::copy_n(from, position, copies_.gathered.data() + at);
  });
  buffer.upload(copies_.gathered.data(), bytes);
}

void HostCall::replace(Buffer& buffer, Tensor& tensor) {
  written_.push_back({&buffer, tensor});
  tensor = copy_of(tensor, room(buffer, bytes_of(tensor)), queue_.device());
}

void HostCall::in(std::initializer_list<Tensor*> tensors) {
  for (Tensor* const tensor : tensors) {
    Buffer& buffer = copies_.tensors.at(next_++);
    if (*tensor) copy(buffer, *tensor);
  }
}

void HostCall::out(std::initializer_list<Tensor*> tensors) {
  for (Tensor* const tensor : tensors) {
    Buffer& buffer = copies_.tensors.at(next_++);
    if (*tensor) replace(buffer, *tensor);
  }
}

void HostCall::update(Tensor& tensor) {
  Buffer& buffer = copies_.tensors.at(next_++);
  Tensor read = tensor;
  copy(buffer, read);
  replace(buffer, tensor);
}

void HostCall::again(Tensor& tensor) {
  if (tensor) tensor = copy_of(tensor, copies_.tensors.front().data(), queue_.device());
}

void HostCall::fetch() {
  for (const auto& [buffer, host] : written_) {
    const std::size_t bytes = bytes_of(host), position = position_bytes_of(host);
    if (lies_as(host, copy_of(host, nullptr, {}))) {
      buffer->download(host.data, bytes);
      continue;
    }
    copies_.gathered.resize(bytes);
    buffer->download(copies_.gathered.data(), bytes);
    for_each_position(host, position, [&, from = copies_.gathered.data()](std::byte* to, std::size_t at) {
      std::copy_n(from + at, position, to);
    });
  }
}

}  // namespace penstock::ops
