#include "tape_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "frameworks/host_memory.h"

namespace penstock::torch_ops {
namespace {

/// Keeps idle blocks for later calls of the same or a smaller size, within two limits. All blocks together, used and
/// idle, never take more memory than was in use at once. A block that `patience` calls in a row did not need returns to
/// the system. Any thread may take and return blocks.
class Blocks {
 public:
  static constexpr std::size_t smallest = std::size_t{4} << 20;  ///< Bytes. The C library caches smaller blocks itself.
  static constexpr std::uint64_t patience = 32;
  /// Largest ratio of the size of a block to the requested size. Batches differ in length, and a small one must not
  /// hold the block of the largest.
  static constexpr std::size_t roomiest = 4;

  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::uint64_t last_call;  ///< Number of the last call that used the block

    ~Block();
  };
  struct GiveBack {
    void operator()(Block* block) const;
  };
  /// A block that returns to shared() when it is destroyed.
  using Lease = std::unique_ptr<Block, GiveBack>;

  /// Returns the blocks of this process. They are never destroyed, since a block may be returned until the very end.
  static Blocks& shared();

  /// Returns a block of at least this size, aligned to a large page. Throws std::bad_alloc.
  Lease take(std::size_t bytes);
  /// Returns idle blocks to the system. Returns their number of bytes.
  std::size_t release();

 private:
  using List = std::vector<std::unique_ptr<Block>>;

  void give_back(std::unique_ptr<Block> block);
  std::unique_ptr<Block> find_idle(std::size_t bytes);
  /// Removes idle blocks beyond the limits and returns them, to be freed.
  List surplus();

  std::mutex guard_;
  List idle_;  // least recently used first
  std::size_t in_use_ = 0, most_in_use_ = 0;
  std::uint64_t calls_ = 0;
};

constexpr std::size_t kLargePage = std::size_t{2} << 20;

Blocks::Block::~Block() {
  frameworks::return_pages(memory, bytes);
  ::operator delete[](memory, std::align_val_t{kLargePage});
}

void Blocks::GiveBack::operator()(Block* block) const { shared().give_back(std::unique_ptr<Block>(block)); }

Blocks& Blocks::shared() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

Blocks::Lease Blocks::take(std::size_t bytes) {
  const std::size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  List freed;
  {
    const std::lock_guard lock(guard_);
    ++calls_;
    std::unique_ptr<Block> block = find_idle(whole);
    in_use_ += block ? block->bytes : whole;
    most_in_use_ = std::max(most_in_use_, in_use_);
    freed = surplus();
    if (block) return Lease(block.release());
  }
  freed.clear();  // frees memory before the next allocation
  try {
    auto* const memory = static_cast<std::byte*>(::operator new[](whole, std::align_val_t{kLargePage}));
    frameworks::ask_for_large_pages(memory, whole);
    return Lease(new Block{memory, whole, 0});
  } catch (...) {
    const std::lock_guard lock(guard_);
    in_use_ -= whole;
    throw;
  }
}

void Blocks::give_back(std::unique_ptr<Block> block) {
  List freed;
  const std::lock_guard lock(guard_);
  in_use_ -= block->bytes;
  block->last_call = calls_;
  idle_.push_back(std::move(block));
  freed = surplus();
}

std::size_t Blocks::release() {
  List freed;
  {
    const std::lock_guard lock(guard_);
    freed.swap(idle_);
    most_in_use_ = in_use_;
  }
  std::size_t bytes = 0;
  for (const auto& block : freed) bytes += block->bytes;
  return bytes;
}

std::unique_ptr<Blocks::Block> Blocks::find_idle(std::size_t bytes) {
  auto best = idle_.end();
  for (auto block = idle_.begin(); block != idle_.end(); ++block) {
    const bool fits = (*block)->bytes >= bytes && (*block)->bytes <= roomiest * bytes;
    // Among blocks of equal size, the most recently used one may still be in a cache.
    if (fits && (best == idle_.end() || (*block)->bytes <= (*best)->bytes)) best = block;
  }
  if (best == idle_.end()) return nullptr;
  std::unique_ptr<Block> found = std::move(*best);
  idle_.erase(best);
  return found;
}

Blocks::List Blocks::surplus() {
  std::size_t kept = in_use_;
  for (const auto& block : idle_) kept += block->bytes;
  List taken;
  while (!idle_.empty() && (kept > most_in_use_ || idle_.front()->last_call + patience < calls_)) {
    kept -= idle_.front()->bytes;
    taken.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  return taken;
}

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
