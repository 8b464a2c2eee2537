#pragma once

#include <array>
#include <cstddef>

#include "network/tensor.h"

namespace penstock::network {

/// A loop over tensors side by side: extents, and the stride of each tensor along each axis (0: repeated). Neighbouring
/// axes become one where all strides allow it.
class StridedLoop {
 public:
  static constexpr int kTensors = 4;
  using Strides = std::array<Index, kTensors>;

  /// Adds an axis, from the outermost to the innermost.
  void add(Index extent, const Strides& strides);
  /// Where tensors begin.
  Strides first = {};

  bool operator==(const StridedLoop&) const = default;
  bool empty() const { return empty_; }
  int axes() const { return axes_; }
  Index extent(int axis) const { return extents_[axis]; }
  const Strides& strides(int axis) const { return strides_[axis]; }
  /// Steps along the innermost axis; 1 with stride 1 if there is none.
  Index inner() const { return axes_ == 0 ? 1 : extents_[axes_ - 1]; }
  Index inner_stride(int tensor) const { return axes_ == 0 ? 1 : strides_[axes_ - 1][tensor]; }
  /// Returns whether it is one loop along memory for these tensors.
  bool contiguous(int tensors) const;

  /// Calls row(offsets) for each run of inner() elements.
  template <class Row>
  void rows(const Row& row) const {
    if (empty_) return;
    if (axes_ < 2) return static_cast<void>(row(first));
    Index counter[2 * kMostAxes] = {};
    Strides at = first;
    for (;;) {
      row(at);
      int axis = axes_ - 2;
      for (; axis >= 0; --axis) {
        for (int t = 0; t < kTensors; ++t) at[t] += strides_[axis][t];
        if (++counter[axis] < extents_[axis]) break;
        counter[axis] = 0;
        for (int t = 0; t < kTensors; ++t) at[t] -= extents_[axis] * strides_[axis][t];
      }
      if (axis < 0) return;
    }
  }

 private:
  int axes_ = 0;
  bool empty_ = false;
  std::array<Index, 2 * kMostAxes> extents_ = {};
  std::array<Strides, 2 * kMostAxes> strides_ = {};
};

/// Strides of a row-major tensor.
Shape strides_of(const Shape& shape);
/// Those of a tensor broadcast to `target`, one for each of its axes.
Shape broadcast_strides(const Shape& shape, const Shape& target);
/// A loop over a row-major result (tensor 0) and up to three tensors broadcast to it.
StridedLoop broadcast_loop(const Shape& target, const Shape& a, const Shape& b = {}, const Shape& c = {});
/// Copies elements of `size` bytes from tensor 1 to tensor 0.
void copy(const StridedLoop& loop, std::size_t size, const std::byte* from, std::byte* to);

}  // namespace penstock::network
