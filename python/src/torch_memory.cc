#include "torch_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

namespace penstock::torch_ops {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

/// Asks the system for large pages. Blocks of some size come fresh from it and go back to it with every call: to be
/// given them in pages of 4 KB takes several times as long as to write them. And weights that are read at every step
/// are found sooner in few pages.
void ask_for_large_pages(void* memory, std::size_t bytes) {
#ifdef __linux__
  constexpr std::size_t large = std::size_t{4} << 20;  // holds a page of 2 MB wherever it begins
  if (bytes < large) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  // An advice: a system that has none goes on as ever. NOLINTNEXTLINE(performance-no-int-to-ptr)
  static_cast<void>(madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

/// Memory of the calling thread that grows as calls need more.
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

/// Bytes from the tensor's first to the first at a multiple of the alignment.
std::size_t offset_in(const TorchTensor& tape) {
  const auto address = reinterpret_cast<std::uintptr_t>(tape.address());
  return (Tape::alignment - address % Tape::alignment) % Tape::alignment;
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
  TorchTensor tape = like.empty({static_cast<std::int64_t>(tensor_bytes(bytes))}, shim().uint8);
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
    // PyTorch's allocator aligns tensors of GPUs to more than this; views may begin anywhere.
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
