#pragma once

#include <cstdint>

#include "penstock/tensor.h"
#include "shim.h"

/// Views of PyTorch tensors for the library.
namespace penstock::torch_ops {

/// Returns the type for the library. Throws std::runtime_error for types that it does not support.
DType dtype_of(std::int32_t type);

Device device_of(const TorchTensor& tensor);

/// Returns the type in which a scan computes a sequence: on a CPU 16-bit types become float32.
std::int32_t computed_type(const TorchTensor& tensor);
/// Returns the type in which a recurrent layer reads a sequence: on a CPU only float16 becomes float32.
std::int32_t stored_type(const TorchTensor& tensor);
/// Returns the type of states and sums: float64 for float64, otherwise float32.
std::int32_t state_type(const TorchTensor& tensor);

/// Returns the context of a call: PyTorch's current stream on a GPU, its number of threads on a CPU. `precision` counts
/// only on a CPU.
Context context_of(const TorchTensor& tensor, Precision precision = Precision::full);

/// Returns a view of a contiguous tensor; an empty view for an empty handle.
Tensor view_of(const TorchTensor& contiguous);

}  // namespace penstock::torch_ops
