#include "views.h"

#include <stdexcept>

namespace penstock::torch_ops {

DType dtype_of(std::int32_t type) {
  if (type == shim().float32) return DType::f32;
  if (type == shim().float64) return DType::f64;
  if (type == shim().bf16) return DType::bf16;
  if (type == shim().f16) return DType::f16;
  throw std::runtime_error("tensors must be float32, float64, bfloat16 or float16");
}

Device device_of(const TorchTensor& tensor) {
  return tensor.is_cuda() ? Device::cuda(tensor.device_index()) : Device::cpu();
}

std::int32_t state_type(const TorchTensor& tensor) {
  return tensor.dtype() == shim().float64 ? shim().float64 : shim().float32;
}

std::int32_t computed_type(const TorchTensor& tensor) { return tensor.is_cuda() ? tensor.dtype() : state_type(tensor); }

std::int32_t stored_type(const TorchTensor& tensor) {
  return tensor.dtype() == shim().bf16 ? tensor.dtype() : computed_type(tensor);
}

Context context_of(const TorchTensor& tensor, Precision precision) {
  Context context;
  context.execution.device = device_of(tensor);
  if (tensor.is_cuda()) {
    check_status(cuda_shim().current_stream(tensor.device_index(), &context.stream), "torch.cuda.current_stream");
    return context;
  }
  std::uint32_t threads = 0;
  check_status(shim().threads(&threads), "torch.get_num_threads");
  context.execution.threads = static_cast<int>(threads);
  context.execution.precision = precision;
  return context;
}

Tensor view_of(const TorchTensor& contiguous) {
  Tensor view;
  if (!contiguous) return view;
  view.data = contiguous.address();
  view.dtype = dtype_of(contiguous.dtype());
  view.device = device_of(contiguous);
  view.rank = static_cast<int>(contiguous.dim());
  Index stride = 1;
  for (Index axis = contiguous.dim(); axis-- > 0;) {
    view.shape[static_cast<std::size_t>(axis)] = contiguous.size(axis);
    view.strides[static_cast<std::size_t>(axis)] = stride;
    stride *= contiguous.size(axis);
  }
  return view;
}

}  // namespace penstock::torch_ops
