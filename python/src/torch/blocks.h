#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

/// Large blocks of a CPU's memory, which serve call after call. The system hands out such blocks page by page, and
/// takes as long for that as a call takes to fill them.
namespace penstock::torch_ops {

/// Asks the system for large pages, of which there are fewer to hand out and to look up.
void ask_for_large_pages(void* memory, std::size_t bytes);

/// Idle blocks are kept for the next call that wants one of their size or less, within two bounds: all blocks together,
/// those in use and idle ones, never take more than the most that was ever in use at once; and a block that
/// `patience` calls in a row had no use for goes back to the system. Any thread may take one and give it back.
class Blocks {
 public:
  static constexpr std::size_t smallest = std::size_t{4} << 20;  ///< Smaller ones the C library keeps by itself.
  static constexpr std::uint64_t patience = 32;
  /// How many times as large as what is wanted a block may be: batches differ in length, and the largest one is not to
  /// be held for the smallest.
  static constexpr std::size_t roomiest = 4;

  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::uint64_t last_call;  ///< By which it was used

    ~Block();
  };
  struct GiveBack {
    void operator()(Block* block) const;
  };
  /// A block that goes back to shared() in the end.
  using Lease = std::unique_ptr<Block, GiveBack>;

  /// Those of this process. They outlive whatever may still give one back when the process ends.
  static Blocks& shared();

  /// At a multiple of a large page. Throws std::bad_alloc.
  Lease take(std::size_t bytes);
  /// Gives idle blocks back to the system; the bytes of these.
  std::size_t release();

 private:
  using List = std::vector<std::unique_ptr<Block>>;

  void give_back(std::unique_ptr<Block> block);
  std::unique_ptr<Block> find_idle(std::size_t bytes);
  /// Takes what is beyond the bounds from the idle ones, to be freed.
  List surplus();

  std::mutex guard_;
  List idle_;  // the one used longest ago comes first
  std::size_t in_use_ = 0, most_in_use_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace penstock::torch_ops
