#include "memory.h"

#include <cstring>
#include <memory>
#include <new>

#include "blocks.h"

namespace penstock::torch_ops {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

/// Returns memory of the calling thread, which grows with the largest call.
void* scratch(std::size_t bytes) {
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{Tape::alignment}); }
  };
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{Tape::alignment})));
    size = bytes;
    ask_for_large_pages(memory.get(), bytes);
  }
  return memory.get();
}

/// Returns the bytes from the start of the tensor to the first aligned address.
std::size_t offset_in(const TorchTensor& tape) {
  const auto address = reinterpret_cast<std::uintptr_t>(tape.address());
  return (Tape::alignment - address % Tape::alignment) % Tape::alignment;
}

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
    memory_ = {scratch(bytes), bytes};
  }
}

std::size_t Tape::tensor_bytes(std::size_t bytes) { return bytes + alignment + kWordBytes; }

TorchTensor Tape::allocate(const TorchTensor& like, std::size_t bytes) {
  const std::size_t whole = tensor_bytes(bytes);
  if (!like.is_cuda() && whole >= Blocks::smallest) {
    if (TorchTensor tape = in_a_block(whole)) return tape;
  }
  TorchTensor tape = like.empty({static_cast<std::int64_t>(whole)}, shim().uint8);
  if (!tape.is_cuda()) ask_for_large_pages(tape.address(), tape.bytes());
  return tape;
}

Memory Tape::begin(const TorchTensor& tape, std::size_t bytes) {
  const std::uint64_t offset = offset_in(tape);
  if (!tape.is_cuda()) std::memcpy(tape.data<std::byte>() + tensor_bytes(bytes) - kWordBytes, &offset, kWordBytes);
  return {tape.data<std::byte>() + offset, bytes};
}

TorchTensor Tape::settled(const TorchTensor& tape, std::size_t bytes) {
  check(tape.dtype() == shim().uint8 && tape.dim() == 1 && tape.is_contiguous() && tape.bytes() == tensor_bytes(bytes),
        "tape must be what the forward pass of this very call returned with keep_tape, not ", tape);
  if (tape.is_cuda()) {
    // PyTorch's allocator aligns GPU tensors sufficiently, but views may start anywhere.
    return offset_in(tape) == 0 ? tape.share() : tape.clone();
  }
  std::uint64_t written = 0;
  std::memcpy(&written, tape.data<std::byte>() + tensor_bytes(bytes) - kWordBytes, kWordBytes);
  check(written < alignment, "tape does not hold what a forward pass wrote");
  if (written == offset_in(tape)) return tape.share();
  TorchTensor copy = allocate(tape, bytes);
  std::memcpy(begin(copy, bytes).data, tape.data<std::byte>() + written, bytes);
  return copy;
}

Memory Tape::find(const TorchTensor& settled, std::size_t bytes) {
  return {settled.data<std::byte>() + offset_in(settled), bytes};
}

}  // namespace penstock::torch_ops

/// Returns idle memory blocks to the system. Returns their number of bytes.
extern "C" __attribute__((visibility("default"))) std::int64_t penstock_torch_release_memory() {
  return static_cast<std::int64_t>(penstock::torch_ops::Blocks::shared().release());
}
