#pragma once

#include <optional>
#include <vector>

#include "arrays.h"

/// Sequences as calls pass them: arrays [T, C] of one row, [B, T, C], or packed [total, C].
namespace penstock::python {

/// In which order the axes of rows and steps come.
enum class Layout { batch_first, time_first };

/// Which steps of which rows a call computes, with its arrays kept alive.
class Rows {
 public:
  /// From the shape of x and from `which`: None, or the tuple of the arguments `lengths` (int64 [B]), `cu_seqlens`
  /// (int64 [B + 1]) and `reset_mask` (bool or uint8, [B, T], as x is laid out; packed: [total]), any of them None.
  Rows(const Array& x, Layout layout, nb::handle which);

  const Batch& batch() const { return batch_; }
  /// x is [T, C]: one row without an axis of its own.
  bool one_row() const { return one_row_; }
  bool packed() const { return batch_.cu_seqlens != nullptr; }
  Layout layout() const { return layout_; }
  /// Steps of all rows together, padding included.
  Index positions() const { return packed() ? total_ : batch_.rows * batch_.steps; }
  /// The shape of a sequence of these rows with that many channels.
  Shape shape(Index channels) const;
  /// Throws Error(invalid_argument) naming the array unless it has that shape.
  void check(const Array& sequence, Index channels) const;

  /// The library's view of an array of that shape, whose channels are side by side.
  template <class Real>
  SequenceView<Real> view(const Array& sequence) const {
    if (!sequence) return {};
    auto* data = sequence.as<Real>();
    // An axis of one item has any stride; the library wants one that does not overlap.
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

 private:
  void read_lengths(nb::handle object);
  void read_packed(nb::handle object);
  void read_resets(nb::handle object);

  Batch batch_;
  Layout layout_;
  bool one_row_ = false;
  Index total_ = 0;  // packed: steps of all rows
  Array lengths_, cu_seqlens_, reset_;
  std::vector<std::uint8_t> transposed_reset_;
};

}  // namespace penstock::python
