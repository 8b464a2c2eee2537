#pragma once

#include "penstock/tensor.h"
#include "shim.h"

/// Memory for the library's programs out of PyTorch's tensors.
namespace penstock::torch_ops {

/// The device of a tensor is the current one as long as this lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(const TorchTensor& tensor);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  CudaGuardHandle guard_ = nullptr;
};

/// Scratch memory for one call. On a CPU each thread keeps its own, since fresh pages cost more than small calls take;
/// on a GPU it is PyTorch's, which reuses it in the order of the stream.
class Workspace {
 public:
  Workspace(const TorchTensor& like, std::size_t bytes);
  Memory memory() const { return memory_; }

 private:
  TorchTensor tensor_;
  Memory memory_;
};

/// What a forward pass keeps, in a tensor of bytes. It begins at a multiple of 256, which tensors on a CPU do not, and
/// the tensor's last bytes say where that was: a tensor that has been elsewhere meanwhile lies differently.
struct Tape {
  static constexpr std::size_t alignment = 256;

  /// Of a tensor that holds so many bytes at such a place.
  static std::size_t tensor_bytes(std::size_t bytes);
  static TorchTensor allocate(const TorchTensor& like, std::size_t bytes);
  /// Where a forward pass writes.
  static Memory begin(const TorchTensor& tape, std::size_t bytes);
  /// What it has written, in the tensor itself or, if that lies differently now, in a copy. Throws std::runtime_error
  /// for a tensor that allocate() has not made for so many bytes.
  static TorchTensor settled(const TorchTensor& tape, std::size_t bytes);
  static Memory find(const TorchTensor& settled, std::size_t bytes);
};

}  // namespace penstock::torch_ops
