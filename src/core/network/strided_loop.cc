#include "network/strided_loop.h"

#include <cstring>

namespace penstock::network {

namespace {

template <class T>
void copy_row(Index n, const std::byte* from, Index from_stride, std::byte* to, Index to_stride) {
  const T* x = reinterpret_cast<const T*>(from);
  T* y = reinterpret_cast<T*>(to);
  for (Index i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
}

}  // namespace

void StridedLoop::add(Index extent, const Strides& strides) {
  if (extent == 0) empty_ = true;
  if (extent <= 1) return;
  bool joins = axes_ > 0;
  for (int t = 0; t < kTensors && joins; ++t) joins = strides_[axes_ - 1][t] == strides[t] * extent;
  if (joins) {
    extents_[axes_ - 1] *= extent;
    strides_[axes_ - 1] = strides;
  } else {
    extents_[axes_] = extent;
    strides_[axes_++] = strides;
  }
}

bool StridedLoop::contiguous(int tensors) const {
  if (axes_ > 1) return false;
  for (int t = 0; t < tensors; ++t) {
    if (inner_stride(t) != 1) return false;
  }
  return true;
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size());
  Index stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  return strides;
}

Shape broadcast_strides(const Shape& shape, const Shape& target) {
  Shape strides(target.size(), 0);
  const Shape own = strides_of(shape);
  const std::size_t skip = target.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) strides[skip + i] = shape[i] == 1 ? 0 : own[i];
  return strides;
}

StridedLoop broadcast_loop(const Shape& target, const Shape& a, const Shape& b, const Shape& c) {
  const Shape of_target = strides_of(target), of_a = broadcast_strides(a, target), of_b = broadcast_strides(b, target),
              of_c = broadcast_strides(c, target);
  StridedLoop loop;
  for (std::size_t i = 0; i < target.size(); ++i) loop.add(target[i], {of_target[i], of_a[i], of_b[i], of_c[i]});
  return loop;
}

void copy(const StridedLoop& loop, std::size_t size, const std::byte* from, std::byte* to) {
  const Index n = loop.inner(), to_stride = loop.inner_stride(0), from_stride = loop.inner_stride(1);
  const auto bytes = static_cast<Index>(size);
  loop.rows([&](const StridedLoop::Strides& at) {
    std::byte* y = to + at[0] * bytes;
    const std::byte* x = from + at[1] * bytes;
    if (to_stride == 1 && from_stride == 1) {
      std::memcpy(y, x, static_cast<std::size_t>(n) * size);
    } else if (size == 4) {
      copy_row<std::uint32_t>(n, x, from_stride, y, to_stride);
    } else if (size == 8) {
      copy_row<std::uint64_t>(n, x, from_stride, y, to_stride);
    } else {
      copy_row<std::uint8_t>(n, x, from_stride, y, to_stride);
    }
  });
}

}  // namespace penstock::network
