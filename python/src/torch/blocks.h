#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

/// A cache of large blocks of CPU memory. New blocks are slow: the system provides them page by page, which takes as
/// long as filling them.
namespace penstock::torch_ops {

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

}  // namespace penstock::torch_ops
