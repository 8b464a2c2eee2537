// Where the rows of a block's slice lie, and how tiles of them move between shared and global memory.
//
// A *slot* is a row's place in the slice. Steps count from where the recurrence starts: the last step of a row if
// it descends.

#include "backend/cuda/kernels/dense/arguments.h"

/// One row of a slice.
struct Row {
  int number;  // b; -1: there is none
  int memory;  // row of the tensors: b, or 0 for packed rows
  int first;   // its first step in the tensors
  int length;  // steps that exist
  int padded;  // steps that have memory

  PENSTOCK_DEVICE Row of_slot(const DenseRows& rows, int slot, bool descending) {
    Row row{-1, 0, 0, 0, 0};
    if (slot >= rows.rows) return row;
    row.number = rows.order != nullptr ? rows.order[slot] : slot;
    row.memory = row.number;
    row.length = row.padded = (int)rows.steps;
    if (rows.cu_seqlens != nullptr) {
      // Numbers from outside that nobody could check without waiting for the GPU: no row leaves the tensor.
      const Index first = min(max(rows.cu_seqlens[row.number], 0ll), rows.steps);
      const int all = (int)min(max(rows.cu_seqlens[row.number + 1] - first, 0ll), rows.steps - first);
      const int left = max(all - rows.begin, 0);
      row.memory = 0;
      row.length = row.padded = min(left, rows.most);
      row.first = (int)first + (descending ? left - row.length : min(rows.begin, all));
    } else if (rows.lengths != nullptr) {
      row.length = (int)min(max(rows.lengths[row.number], 0ll), rows.steps);
    }
    return row;
  }

  /// Index in T of a step; padding counts upwards in either direction.
  __device__ __forceinline__ int time(int step, bool descending) const {
    return first + (descending && step < length ? length - 1 - step : step);
  }
  __device__ __forceinline__ char* at(const DenseTensor& tensor, int step, bool descending) const {
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

/// A storage whose values are as wide as an access allows, where bytes are moved and not computed with.
template <int kAccess>
using ByteStorage = typename Choose<(kAccess >= 4)>::Storage;

/// Stores without a branch, which would part the arithmetic around it.
template <class Access>
PENSTOCK_DEVICE void StoreIf(bool exists, const Access& value, char* p) {
  if constexpr (Access::bytes == 16) {
    asm volatile(
        "{\n.reg .pred exists;\nsetp.ne.s32 exists, %5, 0;\n@exists st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::
            "l"(p),
        "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]), "r"((int)exists)
        : "memory");
  } else {
    if (exists) value.store(p);
  }
}

/// Starts a copy to shared memory, or none.
template <int kAccess>
PENSTOCK_DEVICE void FetchIf(bool exists, char* shared, const char* global) {
  if constexpr (kAccess == 16) {
    asm volatile(
        "{\n.reg .pred exists;\nsetp.ne.s32 exists, %2, 0;\n@exists cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(
            (unsigned)__cvta_generic_to_shared(shared)),
        "l"(global), "r"((int)exists)
        : "memory");
  } else {
    if (exists) CopyAsync<kAccess>(shared, global, true);
  }
}

/// Moves `kSegments` segments of each of `kRows` rows, a step at a time; the threads share the accesses. `tensor` lies
/// among the kernel's parameters, so that its strides need no registers.
template <int kRows, int kSegments, int kSegmentBytes, int kSegmentPitch, int kPitch, int kAccess, int kThreads>
struct Mover {
  static_assert(kSegmentBytes % kAccess == 0);
  static constexpr int per_segment = kSegmentBytes / kAccess, all = kRows * kSegments * per_segment;
  static constexpr int count = (all + kThreads - 1) / kThreads;
  /// Few enough accesses that their addresses can stay in registers.
  static constexpr bool kept = count <= 4;
  static constexpr int places = kept ? count : 1;
  using Access = Vector<ByteStorage<kAccess>, kAccess / ByteStorage<kAccess>::bytes>;

  const DenseTensor& tensor;
  const Row* rows;
  Index channel;          // bytes from a position's first channel to the head's
  Index segment_stride;   // in the tensor, in bytes
  char* address[places];  // at step 0
  int shared[places];
  int length[places];

  PENSTOCK_DEVICE int slot_of(int piece) { return piece / (kSegments * per_segment); }
  PENSTOCK_DEVICE int place(int piece) {
    return slot_of(piece) * kPitch + piece / per_segment % kSegments * kSegmentPitch + piece % per_segment * kAccess;
  }
  __device__ __forceinline__ char* at(int piece, const Row& row, int step) const {
    return row.at(tensor, step, kDescending) + channel + piece / per_segment % kSegments * segment_stride +
           piece % per_segment * kAccess;
  }

  __device__ __forceinline__ Mover(const DenseTensor& of, const Row* of_slots, Index from_channel, Index stride)
      : tensor(of), rows(of_slots), channel(from_channel), segment_stride(stride) {
    if constexpr (kept) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int piece = threadIdx.x + i * kThreads;
        length[i] = shared[i] = 0;
        address[i] = nullptr;
        if (piece >= all) continue;
        const Row& row = rows[slot_of(piece)];
        length[i] = tensor.data != nullptr ? row.length : 0;
        address[i] = at(piece, row, 0);
        shared[i] = place(piece);
      }
    }
  }

  /// Calls visit(number of the access, whether it exists, place in the tile, address) for this thread's accesses of a
  /// step; of a step that no row has, before the first one or after the last, none exists.
  template <class Visit>
  __device__ __forceinline__ void for_each(int step, const Visit& visit) const {
    if constexpr (kept) {
      const Index offset = step * (kDescending ? -tensor.step_stride : tensor.step_stride);
#pragma unroll
      for (int i = 0; i < count; ++i) visit(i, (unsigned)step < (unsigned)length[i], shared[i], address[i] + offset);
    } else if (tensor.data != nullptr) {
      for (int piece = threadIdx.x; piece < all; piece += kThreads) {
        const Row& row = rows[slot_of(piece)];
        if ((unsigned)step < (unsigned)row.length) visit(0, true, place(piece), at(piece, row, step));
      }
    }
  }

  /// Starts copies of a step to a tile.
  __device__ __forceinline__ void fetch(char* tile, int step) const {
    for_each(step, [&](int, bool exists, int to, char* from) { FetchIf<kAccess>(exists, tile + to, from); });
  }

  /// Values that a thread will write, if they are few accesses: read early, so that nothing waits for shared memory
  /// later.
  struct Held {
    Access access[places];
  };
  __device__ __forceinline__ Held read(const char* tile) const {
    Held held;
    if constexpr (kept) {
#pragma unroll
      for (int i = 0; i < count; ++i) held.access[i] = Access::read(tile + shared[i]);
    } else {
      held.access[0] = Access::zero();
    }
    return held;
  }
  /// Writes a step, read from this tile.
  __device__ __forceinline__ void store(const Held& held, const char* tile, int step) const {
    for_each(step, [&](int i, bool exists, int from, char* to) {
      if constexpr (kept) {
        StoreIf(exists, held.access[i], to);
      } else {
        Access::read(tile + from).store(to);
      }
    });
  }

  /// Writes zeros where rows have memory but no step.
  __device__ __forceinline__ void clear_padding() const {
    if (tensor.data == nullptr) return;
    for (int slot = 0; slot < kRows; ++slot) {
      const Row& row = rows[slot];
      const Index pieces = (Index)(row.padded - row.length) * (kSegments * per_segment);
      for (Index piece = threadIdx.x; piece < pieces; piece += kThreads) {
        const int of_step = (int)(piece % (kSegments * per_segment));
        Access::zero().store(at(of_step, row, row.length + (int)(piece / (kSegments * per_segment))));
      }
    }
  }
};
