#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "device_arrays.h"

/// Sequences in arguments: arrays [T, C] of one row, [B, T, C], or packed [total, C].
namespace penstock::python {

/// Returns the library's name of a type of floats.
inline DType dtype_of(Scalar scalar) {
  return scalar == Scalar::f64    ? DType::f64
         : scalar == Scalar::bf16 ? DType::bf16
         : scalar == Scalar::f16  ? DType::f16
                                  : DType::f32;
}

/// Returns what the library takes for contiguous states of this shape, or for no array: their address or a tensor.
template <class Real>
Real* states_view(const Array& states, std::initializer_list<Index>) {
  return states ? states.as<Real>() : nullptr;
}
template <class Real>
Tensor states_view(const DeviceArray& states, std::initializer_list<Index> shape) {
  if (!states) return {};
  return Tensor::contiguous(states.data(), dtype_of(states.scalar()), shape, states.device());
}

/// Order of the axes of rows and steps.
enum class Layout { batch_first, time_first };

/// The rows and steps of a call. Keeps the arrays that describe them alive.
class Rows {
 public:
  /// Reads the shape of the array `name`, and `which`: None or the tuple (lengths, cu_seqlens, reset_mask), each of
  /// which may be None. `lengths` is int64 [B], `cu_seqlens` int64 [B + 1], `reset_mask` bool or uint8 in the layout of
  /// the array, [B, T] or, if packed, [total]. With a `stream` they may be on its device, from where they are copied.
  Rows(std::span<const Index> shape, const char* name, Layout layout, nb::handle which,
       const std::shared_ptr<Stream>& stream = nullptr);

  const Batch& batch() const { return batch_; }
  /// Lets resets start rows again at given states. Throws Error(invalid_argument) without resets and for packed rows.
  void restart(Restarts restarts);
  /// Returns true if x is [T, C]: one row without the axis B.
  bool one_row() const { return one_row_; }
  bool packed() const { return batch_.cu_seqlens != nullptr; }
  Layout layout() const { return layout_; }
  /// Returns the number of steps of all rows together, including padding.
  Index positions() const { return packed() ? total_ : batch_.rows * batch_.steps; }
  /// Returns the shape of a sequence of these rows with this many channels.
  Shape shape(Index channels) const;
  /// Throws Error(invalid_argument), which names the array, unless it has this shape.
  template <class AnyArray>
  void check(const AnyArray& sequence, Index channels) const {
    sequence.require_shape(shape(channels), axes());
  }

  /// Returns what the library takes for an array of this shape with contiguous channels, or for no array: in CPU memory
  /// a view, on a device a tensor [B, T, C], or [total, C] of packed rows.
  template <class Real>
  SequenceView<Real> view(const Array& sequence) const {
    return strided<Real>(sequence);
  }
  template <class Real>
  Tensor view(const DeviceArray& sequence) const {
    if (!sequence) return {};
    const SequenceView<Real> at = strided<Real>(sequence);
    const Index channels = sequence.shape().back();
    Tensor tensor{.data = at.data, .dtype = dtype_of(sequence.scalar()), .device = sequence.device()};
    if (packed()) {
      tensor.rank = 2;
      tensor.shape = {total_, channels};
      tensor.strides = {at.step_stride, 1};
    } else {
      tensor.rank = 3;
      tensor.shape = {batch_.rows, batch_.steps, channels};
      tensor.strides = {at.row_stride, at.step_stride, 1};
    }
    return tensor;
  }

  /// Returns values from a few places spread over the steps of all rows, to tell later whether an array of this shape
  /// has been written to. Padding is left out.
  template <class Real>
  std::vector<Real> sample(const Array& sequence) const {
    constexpr Index fewest = 4, most = 64;  // so that small calls take no longer
    const SequenceView<const Real> from = view<const Real>(sequence);
    const Index channels = sequence.shape().back(), all = valid_steps() * channels;
    const Index count = std::min({all, fewest + all / 4096, most}), apart = count > 0 ? all / count : 0;
    std::vector<Real> values(static_cast<std::size_t>(count));
    Index row = 0, row_begin = 0;
    for (Index i = 0; i < count; ++i) {
      const Index at = i * apart + std::min(i, apart - 1);  // not the same channel each time
      for (; at >= (row_begin + length(row)) * channels; ++row) row_begin += length(row);
      const Index step = at / channels, first = packed()
                                                    ? step * from.step_stride
                                                    : row * from.row_stride + (step - row_begin) * from.step_stride;
      values[static_cast<std::size_t>(i)] = from.data[first + at % channels];
    }
    return values;
  }

 private:
  template <class Real, class AnyArray>
  SequenceView<Real> strided(const AnyArray& sequence) const {
    if (!sequence) return {};
    auto* data = sequence.template as<Real>();
    // An axis of size 1 may have any stride, but the library needs strides that do not overlap.
    const Index channels = sequence.shape().back();
    if (packed() || one_row_) {
      const Index step = sequence.shape()[0] > 1 ? sequence.stride(0) : channels;
      return {data, step * std::max<Index>(sequence.shape()[0], 1), step};
    }
    const std::size_t row_axis = layout_ == Layout::time_first ? 1 : 0;
    const std::size_t step_axis = 1 - row_axis;
    const Index rows = sequence.shape()[row_axis], steps = sequence.shape()[step_axis];
    const Index step = steps > 1 ? sequence.stride(step_axis) : channels;
    const Index row = rows > 1 ? sequence.stride(row_axis) : step * std::max<Index>(steps, 1);
    return {data, row, step};
  }

  Index length(Index row) const {
    if (packed()) return batch_.cu_seqlens[row + 1] - batch_.cu_seqlens[row];
    return batch_.lengths != nullptr ? batch_.lengths[row] : batch_.steps;
  }
  Index valid_steps() const {
    Index sum = 0;
    for (Index row = 0; row < batch_.rows; ++row) sum += length(row);
    return sum;
  }
  /// Returns the names of the axes of a sequence, for messages.
  const char* axes() const;
  Array read(nb::handle object, const char* name, Scalar scalar) const;
  void read_lengths(nb::handle object);
  void read_packed(nb::handle object);
  void read_resets(nb::handle object);

  Batch batch_;
  Layout layout_;
  bool one_row_ = false;
  Index total_ = 0;  // steps of all rows, if packed
  std::shared_ptr<Stream> stream_;
  Array lengths_, cu_seqlens_, reset_;
};

}  // namespace penstock::python
