#pragma once

#include <cstdint>
#include <initializer_list>

#include "penstock/tensor.h"
#include "shim.h"

/// PyTorch's tensors as the library sees them.
namespace penstock::torch_ops {

/// Throws std::runtime_error for types that the library does not compute in.
DType dtype_of(std::int32_t type);

Device device_of(const TorchTensor& tensor);

/// The type in which sequences of such a tensor are computed: on a CPU halves become floats.
std::int32_t computed_type(const TorchTensor& tensor);
/// The type in which a recurrent layer takes them, whatever it computes in: on a CPU only float16 becomes float.
std::int32_t stored_type(const TorchTensor& tensor);
/// Of states and sums: float, or double for doubles.
std::int32_t state_type(const TorchTensor& tensor);

/// A call in PyTorch's current stream, or with its number of threads. In `precision` only on a CPU.
Context context_of(const TorchTensor& tensor, Precision precision = Precision::full);

/// A contiguous tensor; null if there is none.
Tensor view_of(const TorchTensor& contiguous);

/// The largest of 16, 8, 4, 2 that divides every number of bytes, or every address.
int alignment_of(std::initializer_list<std::uintptr_t> bytes);
int alignment_of(std::initializer_list<const void*> addresses);

}  // namespace penstock::torch_ops
