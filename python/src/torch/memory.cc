#include "memory.h"

#include <cstring>
#include <memory>

#include "blocks.h"
#include "frameworks/host_memory.h"

namespace penstock::torch_ops {
namespace {

using frameworks::TapeArray;

/// Returns a tensor of bytes in a block, which returns to the cache with the last owner of the tensor. Returns no
/// tensor if PyTorch is too old for that.
TorchTensor in_a_block(std::size_t bytes) {
  if (shim().from_blob == nullptr) return {};
  const auto give_back = [](void*, void* block) { Blocks::Lease(static_cast<Blocks::Block*>(block)).reset(); };
  Blocks::Lease block = Blocks::shared().take(bytes);
  TorchTensor tensor = bytes_at(block->memory, bytes, give_back, block.get());
  static_cast<void>(block.release());  // the tensor owns it
  return tensor;
}

}  // namespace

DeviceGuard::DeviceGuard(const TorchTensor& tensor) {
  if (tensor.is_cuda()) check_status(cuda_shim().create_guard(tensor.device_index(), &guard_), "torch.cuda.device");
}

DeviceGuard::~DeviceGuard() {
  if (guard_ != nullptr) cuda_shim().delete_guard(guard_);
}

Workspace::Workspace(const TorchTensor& like, std::size_t bytes) {
  if (like.is_cuda()) {
    tensor_ = like.empty({static_cast<std::int64_t>(bytes)}, shim().uint8);
    memory_ = {tensor_.address(), bytes};
  } else {
    memory_ = {frameworks::scratch(bytes), bytes};
  }
}

TorchTensor Tape::allocate(const TorchTensor& like, std::size_t bytes) {
  const std::size_t whole = TapeArray::bytes(bytes);
  if (!like.is_cuda() && whole >= Blocks::smallest) {
    if (TorchTensor tape = in_a_block(whole)) return tape;
  }
  TorchTensor tape = like.empty({static_cast<std::int64_t>(whole)}, shim().uint8);
  if (!tape.is_cuda()) frameworks::ask_for_large_pages(tape.address(), tape.bytes());
  return tape;
}

Memory Tape::begin(const TorchTensor& tape, std::size_t bytes) {
  return tape.is_cuda() ? find(tape, bytes) : TapeArray::begin(tape.address(), bytes);
}

TorchTensor Tape::settled(const TorchTensor& tape, std::size_t bytes) {
  check(tape.dtype() == shim().uint8 && tape.dim() == 1 && tape.is_contiguous() &&
            tape.bytes() == TapeArray::bytes(bytes),
        "tape must be what the forward pass of this very call returned with keep_tape, not ", tape);
  const std::size_t offset = TapeArray::offset_at(tape.address());
  if (tape.is_cuda()) {
    // PyTorch's allocator aligns GPU tensors sufficiently, but views may start anywhere.
    return offset == 0 ? tape.share() : tape.clone();
  }
  const std::size_t written = TapeArray::stored(tape.address(), bytes);
  if (written == offset) return tape.share();
  TorchTensor copy = allocate(tape, bytes);
  std::memcpy(begin(copy, bytes).data, tape.data<std::byte>() + written, bytes);
  return copy;
}

Memory Tape::find(const TorchTensor& settled, std::size_t bytes) {
  return {settled.data<std::byte>() + TapeArray::offset_at(settled.address()), bytes};
}

}  // namespace penstock::torch_ops

/// Returns idle memory blocks to the system. Returns their number of bytes.
extern "C" __attribute__((visibility("default"))) std::int64_t penstock_torch_release_memory() {
  return static_cast<std::int64_t>(penstock::torch_ops::Blocks::shared().release());
}
