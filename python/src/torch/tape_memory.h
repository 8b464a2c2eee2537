#pragma once

#include "penstock/tensor.h"
#include "shim.h"

/// Memory of PyTorch tensors for the library's programs.
namespace penstock::torch_ops {

/// Makes the device of a tensor the current one during its lifetime.
class DeviceGuard {
 public:
  explicit DeviceGuard(const TorchTensor& tensor);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  CudaGuardHandle guard_ = nullptr;
};

/// Scratch memory for one call. On a CPU each thread keeps its own memory: new pages take longer than a small call. On
/// a GPU it comes from PyTorch's allocator, which reuses it in stream order.
class Workspace {
 public:
  Workspace(const TorchTensor& like, std::size_t bytes);
  Memory memory() const { return memory_; }

 private:
  TorchTensor tensor_;
  Memory memory_;
};

/// The tape of a forward pass in a tensor of bytes (frameworks::TapeArray).
struct Tape {
  static TorchTensor allocate(const TorchTensor& like, std::size_t bytes);
  /// Returns the memory for a forward pass, and stores its offset.
  static Memory begin(const TorchTensor& tape, std::size_t bytes);
  /// Returns the tensor, or an aligned copy if its alignment has changed. Throws std::runtime_error unless allocate()
  /// made the tensor for this many bytes.
  static TorchTensor settled(const TorchTensor& tape, std::size_t bytes);
  static Memory find(const TorchTensor& settled, std::size_t bytes);
};

}  // namespace penstock::torch_ops
