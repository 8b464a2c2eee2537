#include "ops/memory/host_copies.h"

#include <algorithm>

#include "base/dtype.h"
#include "ops/tensor_check.h"

namespace penstock::ops {
namespace {

/// How the copy of a sequence lies: without gaps, in the order in which the host has it if that has none either.
template <class Real>
struct Copied {
  Index rows, steps, channels;
  bool packed, time_first, as_it_is;

  Copied(const Batch& batch, const SequenceView<Real>& view, Index c)
      : rows(batch.cu_seqlens != nullptr ? 1 : batch.rows),
        steps(batch.cu_seqlens != nullptr ? positions_of(batch) : batch.steps),
        channels(c),
        packed(batch.cu_seqlens != nullptr) {
    const bool steps_first = view.row_stride == channels && view.step_stride == rows * channels;
    const bool rows_first =
        (steps == 1 || view.step_stride == channels) && (rows == 1 || view.row_stride == steps * channels);
    time_first = !packed && !rows_first && steps_first;
    as_it_is = rows_first || time_first;
  }

  std::size_t bytes() const { return static_cast<std::size_t>(rows * steps * channels) * sizeof(Real); }
  Tensor tensor(void* data, Device device) const {
    const DType type = dtype_of<std::remove_const_t<Real>>();
    if (packed) return Tensor::contiguous(data, type, {steps, channels}, device);
    return time_first ? Tensor::time_first(data, type, rows, steps, channels, device)
                      : Tensor::contiguous(data, type, {rows, steps, channels}, device);
  }
  /// Every position: where the view has it, and where memory of rows after rows has it.
  template <class Visit>
  void for_each(const SequenceView<Real>& view, const Visit& visit) const {
    for (Index row = 0; row < rows; ++row) {
      for (Index step = 0; step < steps; ++step) {
        visit(view.data + (packed ? 0 : row * view.row_stride) + step * view.step_stride,
              (row * steps + step) * channels);
      }
    }
  }
};

/// A sequence where it lies on the host.
template <class Real>
Tensor tensor_on_host(const Batch& batch, const SequenceView<Real>& view, Index channels) {
  Tensor tensor;
  tensor.data = const_cast<std::remove_const_t<Real>*>(view.data);
  tensor.dtype = dtype_of<std::remove_const_t<Real>>();
  if (batch.cu_seqlens != nullptr) {
    tensor.rank = 2;
    tensor.shape = {positions_of(batch), channels};
    tensor.strides = {view.step_stride, 1};
  } else {
    tensor.rank = 3;
    tensor.shape = {batch.rows, batch.steps, channels};
    tensor.strides = {view.row_stride, view.step_stride, 1};
  }
  return tensor;
}

}  // namespace

Index positions_of(const Batch& batch) {
  return batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

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

HostCall::HostCall(HostCopies& copies, Queue& queue, const Batch& host, Arrays arrays)
    : copies_(copies), queue_(queue), host_(host), batch_(host) {
  if (!copying()) return;
  const auto place = [&]<class T>(const T*& array, Buffer& buffer, Index count) {
    if (array == nullptr) return;
    if (arrays == Arrays::copied) put(buffer, array, static_cast<std::size_t>(count) * sizeof(T));
    array = static_cast<const T*>(buffer.data());
  };
  place(batch_.lengths, copies.lengths, host.rows);
  place(batch_.cu_seqlens, copies.cu_seqlens, host.rows + 1);
  place(batch_.reset, copies.reset, positions_of(host));
}

void* HostCall::room(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(queue_, bytes);
  return buffer.data();
}

void* HostCall::put(Buffer& buffer, const void* from, std::size_t bytes) {
  void* const to = room(buffer, bytes);
  buffer.upload(from, bytes);
  return to;
}

template <class Real>
Tensor HostCall::in(int slot, const SequenceView<const Real>& view, Index channels) {
  if (!view) return {};
  if (!copying()) return tensor_on_host(host_, view, channels);
  const Copied<const Real> copied(host_, view, channels);
  const void* from = view.data;
  if (!copied.as_it_is) {
    copies_.gathered.resize(copied.bytes());
    auto* const to = reinterpret_cast<Real*>(copies_.gathered.data());
    copied.for_each(view, [&](const Real* position, Index at) { std::copy_n(position, channels, to + at); });
    from = to;
  }
  return copied.tensor(put(of(slot), from, copied.bytes()), queue_.device());
}

template <class Real>
Tensor HostCall::again(int slot, const SequenceView<const Real>& view, Index channels) {
  if (!view || !copying()) return in(slot, view, channels);
  return Copied<const Real>(host_, view, channels).tensor(of(slot).data(), queue_.device());
}

template <class Real>
Tensor HostCall::out(int slot, const char* name, const SequenceView<Real>& view, Index channels) {
  if (!view) return {};
  if (!copying()) return tensor_on_host(host_, view, channels);
  const Copied<Real> copied(host_, view, channels);
  const SequenceStrides strides{copied.packed ? 0 : view.row_stride, view.step_stride};
  require_apart(name, {view.data, copied.rows, copied.steps, channels, strides, sizeof(Real)});
  return copied.tensor(room(of(slot), copied.bytes()), queue_.device());
}

template <class Real>
Tensor HostCall::state_in(int slot, const Real* state, std::span<const Index> shape) {
  if (state == nullptr) return {};
  void* const data = copying() ? put(of(slot), state, count_of(shape) * sizeof(Real)) : const_cast<Real*>(state);
  return tensor_of(data, dtype_of<Real>(), shape, queue_.device());
}

template <class Real>
Tensor HostCall::state_out(int slot, Real* state, std::span<const Index> shape) {
  if (state == nullptr) return {};
  void* const data = copying() ? room(of(slot), count_of(shape) * sizeof(Real)) : state;
  return tensor_of(data, dtype_of<Real>(), shape, queue_.device());
}

template <class Real>
void HostCall::fetch(int slot, const SequenceView<Real>& view, Index channels) {
  if (!view || !copying()) return;
  const Copied<Real> copied(host_, view, channels);
  if (copied.as_it_is) return of(slot).download(view.data, copied.bytes());
  copies_.gathered.resize(copied.bytes());
  of(slot).download(copies_.gathered.data(), copied.bytes());
  const auto* const from = reinterpret_cast<const Real*>(copies_.gathered.data());
  copied.for_each(view, [&](Real* position, Index at) { std::copy_n(from + at, channels, position); });
}

template <class Real>
void HostCall::fetch_state(int slot, Real* state, std::span<const Index> shape) {
  if (state != nullptr && copying()) of(slot).download(state, count_of(shape) * sizeof(Real));
}

#define PENSTOCK_HOST_CALL(Real)                                                     \
  template Tensor HostCall::in(int, const SequenceView<const Real>&, Index);         \
  template Tensor HostCall::again(int, const SequenceView<const Real>&, Index);      \
  template Tensor HostCall::out(int, const char*, const SequenceView<Real>&, Index); \
  template Tensor HostCall::state_in(int, const Real*, std::span<const Index>);      \
  template Tensor HostCall::state_out(int, Real*, std::span<const Index>);           \
  template void HostCall::fetch(int, const SequenceView<Real>&, Index);              \
  template void HostCall::fetch_state(int, Real*, std::span<const Index>);
PENSTOCK_HOST_CALL(float)
PENSTOCK_HOST_CALL(double)
#undef PENSTOCK_HOST_CALL

}  // namespace penstock::ops
