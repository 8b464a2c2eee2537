#pragma once

#include <initializer_list>

#include "backend/cuda/driver/kernel.h"
#include "backend/cuda/scan/scan.h"

/// Helpers of the kernels between matrix products. All these kernels read and write tensors without gaps, batch first;
/// every run() allocates nothing, waits for nothing, can be captured, and gives the same bits every time.
namespace penstock::cuda {

/// Bytes that every address is a multiple of, unless a spec says otherwise; run() checks it.
constexpr int kAlignment = 16;
constexpr int kBlockThreads = 256;

/// Steps that exist: rows b of [B, T], each with a length.
struct Positions {
  Index rows = 1, steps = 1;  ///< B, T
  bool lengths = false;       ///< Each call gives int64 [B]; positions beyond their row's length are padding.
  Index count() const { return rows * steps; }
};

/// Most neighbouring values, up to `most`, that every row of `width` values splits into and that accesses of up to 16
/// bytes to each of the storages can take.
int vector_for(Index width, int alignment, std::initializer_list<plan::Storage> storages, int most = 8);

/// How the threads of a block share rows (kernels/pointwise/rows.cuh).
struct RowPlan {
  Index width = 1;
  int vector = 1;
  int group = 1;    ///< Threads of a row, a power of two
  int steps = 1;    ///< Vectors of a thread
  int threads = 0;  ///< Threads of a block
  bool held = true;

  int rows_of_block() const { return threads / group; }
  void add_to(KernelSource& source) const;
};

/// `wanted`: vectors of a thread, as far as there are threads.
RowPlan plan_rows(Index width, int vector, int wanted = 2);

/// Blocks for `items`, so many of them a block, at most `most`; 0 for no items.
unsigned blocks_for(Index items, Index per_block, Index most = 1 << 30);
/// Blocks that run at once, so many of each multiprocessor.
Index resident_blocks(const Device& device, int of_multiprocessor = 2048 / kBlockThreads);

/// Returns the number of resident blocks of a kernel, given its registers, its shared memory and the threads of a
/// block.
Index all_resident(const Device& device, const Kernel& kernel, int threads);

/// A kernel of kernels/pointwise/; `file` is its place there.
KernelSource pointwise_source(std::string entry, const std::string& file, std::vector<Constant> constants);

/// Throws Error(invalid_argument) naming the argument.
void require_size(Index value, Index least, const char* name);
void require_aligned(DeviceAddress address, int alignment, const char* name);
/// Throws as require_aligned() does, but accepts the address 0.
void require_optional(DeviceAddress address, int alignment, const char* name);
void require_positions(const Positions& positions);
void require_lengths(const Positions& positions, DeviceAddress lengths);

/// Adds up partial sums float [parts, size], in their order: `first` gets as many as it has values, `second` the rest.
class SumParts {
 public:
  SumParts() = default;
  SumParts(Device& device, Index parts, Index size, bool add);
  std::size_t bytes() const { return static_cast<std::size_t>(4 * parts_ * size_); }
  Index parts() const { return parts_; }
  void run(DeviceAddress partial, DeviceAddress first, Index first_size, DeviceAddress second,
           StreamHandle stream) const;

 private:
  Index parts_ = 0, size_ = 0;
  const Kernel* kernel_ = nullptr;
};

KernelSource sum_parts_source(bool add);

}  // namespace penstock::cuda
