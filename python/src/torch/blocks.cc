#include "blocks.h"

#include <algorithm>
#include <new>
#include <utility>

#include "frameworks/host_memory.h"

namespace penstock::torch_ops {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

}  // namespace

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

}  // namespace penstock::torch_ops
