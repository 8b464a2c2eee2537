// Where the rows of a block's slice lie, and how tiles of them move between shared and global memory.
//
// A *slot* is a row's place in the slice. Walk steps count from where the recurrence starts: the last step of a row if
// it descends.

#include "backend/cuda/kernels/dense/arguments.h"

/// One row of a slice.
struct Row {
  int number;  // b; -1: there is none
  int memory;  // row of the tensors: b, or 0 for packed rows
  int first;   // its first step in the tensors
  int length;  // steps that exist
  int padded;  // steps that have memory

  PENSTOCK_DEVICE Row of_slot(const DenseRows& rows, int slot) {
    Row row{-1, 0, 0, 0, 0};
    if (slot >= rows.rows) return row;
    row.number = rows.order != nullptr ? rows.order[slot] : slot;
    row.memory = row.number;
    row.length = row.padded = (int)rows.steps;
    if (rows.cu_seqlens != nullptr) {
      // Numbers from outside that nobody could check without waiting for the GPU: no row leaves the tensor.
      const Index first = min(max(rows.cu_seqlens[row.number], 0ll), rows.steps);
      row.memory = 0;
      row.first = (int)first;
      row.length = row.padded = (int)min(max(rows.cu_seqlens[row.number + 1] - first, 0ll), rows.steps - first);
    } else if (rows.lengths != nullptr) {
      row.length = (int)min(max(rows.lengths[row.number], 0ll), rows.steps);
    }
    return row;
  }

  /// Index in T of a walk step; padding counts upwards in either direction.
  __device__ __forceinline__ int time(int step, int descending) const {
    return first + (descending != 0 && step < length ? length - 1 - step : step);
  }
  __device__ __forceinline__ char* at(const DenseTensor& tensor, int step, int descending) const {
    return tensor.data + memory * tensor.row_stride + time(step, descending) * tensor.step_stride;
  }
};

template <bool kWords>
struct Choose {
  using Storage = F32;
};
template <>
struct Choose<false> {
  using Storage = Bf16;
};

/// Bytes from row to row of a tile in shared memory. 32 beyond a multiple of 128, so that four rows lie in other banks.
PENSTOCK_DEVICE constexpr int PitchOf(int bytes) { return (bytes + 127) / 128 * 128 + 32; }

/// A storage whose values are as wide as an access allows, where bytes are moved and not computed with.
template <int kAccess>
using ByteStorage = typename Choose<(kAccess >= 4)>::Storage;

/// Moves `kSegments` segments of each of `kRows` rows, a step at a time; the threads share the accesses.
template <int kRows, int kSegments, int kSegmentBytes, int kSegmentPitch, int kPitch, int kAccess, int kThreads>
struct Mover {
  static_assert(kSegmentBytes % kAccess == 0);
  static constexpr int per_segment = kSegmentBytes / kAccess, all = kRows * kSegments * per_segment;
  static constexpr int count = (all + kThreads - 1) / kThreads;
  /// Few enough accesses that their addresses can stay in registers.
  static constexpr bool kept = count <= 4;
  static constexpr int places = kept ? count : 1;

  const Row* rows;
  DenseTensor tensor;
  bool exists;
  Index segment_stride;  // in the tensor, in bytes
  Index step_stride;     // in the order of the walk
  int descending;
  char* address[places];  // at walk step 0
  int shared[places];
  int length[places];

  PENSTOCK_DEVICE int slot_of(int piece) { return piece / (kSegments * per_segment); }
  __device__ __forceinline__ char* start(int piece) const {
    return rows[slot_of(piece)].at(tensor, 0, descending) + piece / per_segment % kSegments * segment_stride +
           piece % per_segment * kAccess;
  }
  PENSTOCK_DEVICE int place(int piece) {
    return slot_of(piece) * kPitch + piece / per_segment % kSegments * kSegmentPitch + piece % per_segment * kAccess;
  }

  /// `channel`: bytes from a position's first channel to the head's.
  __device__ __forceinline__ void init(const Row* of_slots, const DenseTensor& of, Index channel, Index stride,
                                       int descends) {
    rows = of_slots;
    tensor = of;
    exists = of.data != nullptr;
    tensor.data += channel;
    segment_stride = stride;
    descending = descends;
    step_stride = descends != 0 ? -of.step_stride : of.step_stride;
    if constexpr (kept) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int piece = threadIdx.x + i * kThreads;
        length[i] = 0;
        if (piece >= all) continue;
        length[i] = exists ? rows[slot_of(piece)].length : 0;
        address[i] = start(piece);
        shared[i] = place(piece);
      }
    }
  }

  /// Calls visit(place in the tile, address) for this thread's accesses of a walk step that exist.
  template <class Visit>
  __device__ __forceinline__ void for_each(int step, const Visit& visit) const {
    if (!exists) return;
    if constexpr (kept) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (step < length[i]) visit(shared[i], address[i] + step * step_stride);
      }
    } else {
      for (int piece = threadIdx.x; piece < all; piece += kThreads) {
        if (step < rows[slot_of(piece)].length) visit(place(piece), start(piece) + step * step_stride);
      }
    }
  }

  /// Starts copies of a walk step to a tile.
  __device__ __forceinline__ void fetch(char* tile, int step) const {
    if (step < 0) return;
    for_each(step, [&](int at, char* from) { CopyAsync<kAccess>(tile + at, from, true); });
  }
  /// Writes a walk step from a tile.
  __device__ __forceinline__ void store(const char* tile, int step) const {
    using Access = Vector<ByteStorage<kAccess>, kAccess / ByteStorage<kAccess>::bytes>;
    for_each(step, [&](int at, char* to) { Access::read(tile + at).store(to); });
  }

  /// Writes zeros where rows have memory but no step.
  __device__ __forceinline__ void clear_padding() const {
    using Access = Vector<ByteStorage<kAccess>, kAccess / ByteStorage<kAccess>::bytes>;
    if (!exists) return;
    for (int slot = 0; slot < kRows; ++slot) {
      const Row& row = rows[slot];
      const Index pieces = (Index)(row.padded - row.length) * (kSegments * per_segment);
      for (Index piece = threadIdx.x; piece < pieces; piece += kThreads) {
        const int step = row.length + (int)(piece / (kSegments * per_segment));
        Access::zero().store(row.at(tensor, step, descending) + piece / per_segment % kSegments * segment_stride +
                             piece % per_segment * kAccess);
      }
    }
  }
};
