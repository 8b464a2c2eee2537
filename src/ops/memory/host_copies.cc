#include "ops/memory/host_copies.h"

#include <algorithm>

#include "base/dtype.h"
#include "ops/tensor_check.h"

namespace penstock::ops {
namespace {

/// How a sequence lies on the device: without gaps, in the order in which the host has it if that has none either.
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

Tensor state_tensor(void* data, DType type, const std::vector<Index>& shape, Device device) {
  return shape.size() == 2 ? Tensor::contiguous(data, type, {shape[0], shape[1]}, device)
                           : Tensor::contiguous(data, type, {shape[0], shape[1], shape[2], shape[3]}, device);
}

}  // namespace

Index positions_of(const Batch& batch) {
  return batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

void* HostCopies::memory(Queue& queue, Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(queue, bytes);
  return buffer.data();
}

void* HostCopies::put(Queue& queue, Buffer& buffer, const void* from, std::size_t bytes) {
  void* const to = memory(queue, buffer, bytes);
  buffer.upload(from, bytes);
  return to;
}

Batch HostCopies::upload(Queue& queue, const Batch& batch) {
  Batch there = batch;
  const auto rows = static_cast<std::size_t>(batch.rows);
  if (batch.lengths != nullptr) {
    there.lengths = static_cast<const Index*>(put(queue, lengths_, batch.lengths, rows * sizeof(Index)));
  }
  if (batch.cu_seqlens != nullptr) {
    there.cu_seqlens = static_cast<const Index*>(put(queue, cu_seqlens_, batch.cu_seqlens, (rows + 1) * sizeof(Index)));
  }
  if (batch.reset != nullptr) {
    there.reset = static_cast<const std::uint8_t*>(
        put(queue, reset_, batch.reset, static_cast<std::size_t>(positions_of(batch))));
  }
  return there;
}

template <class Real>
Tensor HostCopies::upload(Queue& queue, int slot, const Batch& batch, SequenceView<const Real> view, Index channels) {
  const Copied<const Real> copied(batch, view, channels);
  const void* from = view.data;
  if (!copied.as_it_is) {
    gathered_.resize(copied.bytes());
    auto* const to = reinterpret_cast<Real*>(gathered_.data());
    copied.for_each(view, [&](const Real* position, Index at) { std::copy_n(position, channels, to + at); });
    from = to;
  }
  return copied.tensor(put(queue, of(slot), from, copied.bytes()), queue.device());
}

template <class Real>
Tensor HostCopies::room(Queue& queue, int slot, const Batch& batch, SequenceView<const Real> view, Index channels) {
  const Copied<const Real> copied(batch, view, channels);
  return copied.tensor(memory(queue, of(slot), copied.bytes()), queue.device());
}

template <class Real>
Tensor HostCopies::upload_state(Queue& queue, int slot, const Real* state, const std::vector<Index>& shape) {
  if (state == nullptr) return {};
  void* const data = put(queue, of(slot), state, count_of(shape) * sizeof(Real));
  return state_tensor(data, dtype_of<Real>(), shape, queue.device());
}

template <class Real>
Tensor HostCopies::state_room(Queue& queue, int slot, bool wanted, const std::vector<Index>& shape) {
  if (!wanted) return {};
  void* const data = memory(queue, of(slot), count_of(shape) * sizeof(Real));
  return state_tensor(data, dtype_of<Real>(), shape, queue.device());
}

template <class Real>
void HostCopies::download(int slot, const Batch& batch, SequenceView<Real> view, Index channels) {
  const Copied<Real> copied(batch, view, channels);
  if (copied.as_it_is) return of(slot).download(view.data, copied.bytes());
  gathered_.resize(copied.bytes());
  of(slot).download(gathered_.data(), copied.bytes());
  const auto* const from = reinterpret_cast<const Real*>(gathered_.data());
  copied.for_each(view, [&](Real* position, Index at) { std::copy_n(from + at, channels, position); });
}

template <class Real>
void HostCopies::download_state(int slot, Real* state, const std::vector<Index>& shape) {
  if (state != nullptr) of(slot).download(state, count_of(shape) * sizeof(Real));
}

#define PENSTOCK_HOST_COPIES(Real)                                                                \
  template Tensor HostCopies::upload(Queue&, int, const Batch&, SequenceView<const Real>, Index); \
  template Tensor HostCopies::room(Queue&, int, const Batch&, SequenceView<const Real>, Index);   \
  template Tensor HostCopies::upload_state(Queue&, int, const Real*, const std::vector<Index>&);  \
  template Tensor HostCopies::state_room<Real>(Queue&, int, bool, const std::vector<Index>&);     \
  template void HostCopies::download(int, const Batch&, SequenceView<Real>, Index);               \
  template void HostCopies::download_state(int, Real*, const std::vector<Index>&);
PENSTOCK_HOST_COPIES(float)
PENSTOCK_HOST_COPIES(double)
#undef PENSTOCK_HOST_COPIES

}  // namespace penstock::ops
