#include "penstock/tensor.h"

#include "base/check.h"

namespace penstock {

Tensor Tensor::contiguous(const void* data, DType dtype, std::initializer_list<Index> shape, Device device) {
  require(shape.size() <= max_rank, "a tensor has at most {} axes, not {}", max_rank, shape.size());
  Tensor tensor;
  // A view of what is only read is never written to. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  tensor.data = const_cast<void*>(data);
  tensor.dtype = dtype;
  tensor.device = device;
  tensor.rank = static_cast<int>(shape.size());
  Index stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    tensor.shape[axis] = shape.begin()[axis];
    tensor.strides[axis] = stride;
    stride *= tensor.shape[axis];
  }
  return tensor;
}

Tensor Tensor::time_first(const void* data, DType dtype, Index rows, Index steps, Index channels, Device device) {
  Tensor tensor = contiguous(data, dtype, {rows, steps, channels}, device);
  tensor.strides = {channels, rows * channels, 1};
  return tensor;
}

}  // namespace penstock
