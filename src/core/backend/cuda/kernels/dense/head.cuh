// Code shared by the kernels whose block holds the recurrent matrix of one head and runs all steps of a slice of
// the rows. A warp has 16 units with all their gates, so that a thread has all values of a unit. In a product, lane 4 g
// + t has units 2 g and 2 g + 1 of its warp in columns 2 t and 2 t + 1. With eight slots it uses all four values; with
// four slots, which fill two columns each, the first column of both units; with two slots, which fill four columns
// each, one unit. Fewer slots make a shorter step.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(HeadPass)

#include "backend/cuda/kernels/dense/cell.cuh"
#include "backend/cuda/kernels/dense/fragments.cuh"
#include "backend/cuda/kernels/dense/rows.cuh"
#include "plan/kernels/dense_head_layout.h"

constexpr int kHead = kPass.held.head, kAccess = kPass.held.access, kSharedBytes = kPass.held.shared_bytes;
constexpr bool kTraining = kPass.held.training, kEveryState = kPass.held.every_state;
constexpr int kSlots = kPass.slots, kResident = kPass.resident, kStages = kPass.stages, kBlocks = kPass.blocks;
constexpr bool kRagged = kPass.ragged, kMeans = kPass.means;
constexpr int G = DenseCell::G, S = DenseCell::S;
static_assert(kSlots == 8 || kSlots == 4 || kSlots == 2);
constexpr int kColumns = kSlots == 8 ? 2 : 1, kUnits = kSlots == 2 ? 1 : 2;  // of a thread
static_assert(!kMeans || kColumns == 1);
constexpr int kValues = kUnits;
#include "backend/cuda/kernels/dense/means.cuh"

constexpr HeadShape kShape = {G,      S,         Rule::phases, DenseCell::split, kHead,       Storage::bytes,
                              kSlots, kResident, kStages,      kTraining,        kTapedFloats};
constexpr int kWarps = (kHead + kHeadUnits - 1) / kHeadUnits, kThreads = 32 * kWarps, kPadded = kHeadUnits * kWarps;
constexpr int kGateBytes = kPadded * Storage::bytes;  // of one gate in a tile
/// Bytes of one access to the float states of the tape.
constexpr int kStateAccess = kHead % 4 == 0 ? 16 : kHead % 2 == 0 ? 8 : 4;
static_assert(sizeof(Row) <= kHeadRowBytes);

/// Values of a thread's units.
using Units = Vector<Storage, kUnits>;

/// Place of a thread.
struct Thread {
  int warp, g, t;
  int pair;            // the first of the two units that its products are of, in the head
  int unit;            // the first one of its own
  int slot[kColumns];  // of its columns
  int operand_slot;    // whose operand it reads

  /// Slots are spread over columns such that neither reads nor writes of tiles meet in a bank.
  PENSTOCK_DEVICE int slot_of_column(int n) {
    if constexpr (kSlots == 2) return n / 2 % 2;
    if constexpr (kSlots == 4) return n / 2;
    return (n & 4) + (((n ^ n >> 2) & 1) << 1) + (n >> 1 & 1);
  }
  PENSTOCK_DEVICE Thread here() {
    Thread at;
    const int lane = threadIdx.x % 32;
    at.warp = threadIdx.x / 32, at.g = lane / 4, at.t = lane % 4;
    at.pair = at.warp * kHeadUnits + 2 * at.g;
    at.unit = at.pair + (kUnits == 1 ? at.t / 2 : 0);
    for (int j = 0; j < kColumns; ++j) at.slot[j] = slot_of_column(2 * at.t + j);
    at.operand_slot = slot_of_column(at.g);
    return at;
  }
  __device__ __forceinline__ bool exists(int i) const { return kHead % kHeadUnits == 0 || unit + i < kHead; }

  /// With one unit: the other one of the pair.
  __device__ __forceinline__ int twin() const { return pair + 1 - t / 2; }
  __device__ __forceinline__ bool twin_exists() const { return kHead % kHeadUnits == 0 || twin() < kHead; }
  __device__ __forceinline__ float of_twin(const float (&sum)[4]) const { return t >= 2 ? sum[0] : sum[2]; }

  /// The value of a product that belongs to the thread's unit `i` and column `j`.
  __device__ __forceinline__ float of(const float (&sum)[4], int i, int j) const {
    if constexpr (kUnits == 1) return t >= 2 ? sum[2] : sum[0];
    return sum[2 * i + j];
  }
};

/// Chunks of `kTiles` tiles of the matrix' rows: the first ones in registers, the others in shared memory.
template <int kTiles, int kChunks>
struct Matrix {
  static constexpr int in_registers = kResident < kChunks ? kResident : kChunks;
  RowFragment held[kTiles][in_registers > 0 ? in_registers : 1];
  char* shared;  // of this thread: [kChunks - in_registers, kTiles, 2, 32 lanes] of 16 bytes for each warp

  /// load(tile, chunk) gives a thread's fragment.
  template <class Load>
  __device__ __forceinline__ void init(char* memory, const Thread& at, const Load& load) {
    shared = memory + at.warp * ((kChunks - in_registers) * kTiles * 1024) + threadIdx.x % 32 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int c = 0; c < in_registers; ++c) held[tile][c] = factors(load(tile, c));
      for (int c = in_registers; c < kChunks; ++c) {
        const RowFragment fragment = factors(load(tile, c));
        char* p = shared + ((c - in_registers) * kTiles + tile) * 1024;
        *(uint4*)p = fragment.upper;
        *(uint4*)(p + 512) = fragment.lower;
      }
    }
  }
  PENSTOCK_DEVICE RowFragment factors(const RowFragment& of) {
    return {AsFactors(of.upper, Storage()), AsFactors(of.lower, Storage())};
  }
  __device__ __forceinline__ RowFragment get(int tile, int c) const {
    if (c < in_registers) return held[tile][c];
    const char* p = shared + ((c - in_registers) * kTiles + tile) * 1024;
    return {*(const uint4*)p, *(const uint4*)(p + 512)};
  }

  /// sum[tile] += tile's rows times the operand of the slots, for tiles first .. first + count - 1. A multiplication
  /// waits for the one before it on the same sums: with few of them, two parts of each sum take turns.
  template <int first, int count>
  __device__ __forceinline__ void multiply(float (&sum)[kTiles][4], const char* operand, const Thread& at) const {
    constexpr int parts = kWarps > 4 && count > 1 ? 1 : count > 1 ? 2 : 4;
    float part[count][parts][4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint4 b = *(const uint4*)(operand + c * kChunkBytes + at.t * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int tile = 0; tile < count; ++tile) {
          const RowFragment a = get(first + tile, c);
          float(&to)[4] = parts == 1 ? sum[first + tile] : part[tile][(2 * c + half) % parts];
          if (half == 0) MultiplyHalves(to, a.upper.x, a.lower.x, a.upper.y, a.lower.y, b.x, b.y, Storage());
          if (half == 1) MultiplyHalves(to, a.upper.z, a.lower.z, a.upper.w, a.lower.w, b.z, b.w, Storage());
        }
      }
    }
    if constexpr (parts > 1) {
#pragma unroll
      for (int tile = 0; tile < count; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float all = part[tile][0][i];
#pragma unroll
          for (int p = 1; p < parts; ++p) all += part[tile][p][i];
          sum[first + tile][i] += all;
        }
      }
    }
  }
};

/// Resets of a thread's columns for 32 steps at a time.
struct Resets {
  unsigned mask[kColumns];

  /// Steps first .. first + 31. All threads of a warp together.
  __device__ __forceinline__ void load(const DenseRows& rows, const Row* of_slots, const Thread& at, int first) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const Row& row = of_slots[slot];
      const int step = first + (int)threadIdx.x % 32;
      bool reset = false;
      if (step < row.length) {
        const Index t = row.time(step, kDescending);
        reset = rows.reset[row.memory * rows.reset_row_stride + t * rows.reset_step_stride] != 0;
      }
      const unsigned all = __ballot_sync(0xffffffffu, reset);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) mask[j] = at.slot[j] == slot ? all : mask[j];
    }
  }
  __device__ __forceinline__ bool at(int j, int step) const { return (mask[j] >> (step & 31) & 1) != 0; }
};

/// The block's slice and head; the longest slices begin first.
struct Slice {
  int head, first_slot;
  int steps;  // of its longest row

  PENSTOCK_DEVICE Slice find(const DenseRows& rows, int heads, Row* of_slots) {
    Slice slice;
    slice.head = blockIdx.x % heads;
    slice.first_slot = blockIdx.x / heads * kSlots;
    if ((int)threadIdx.x < kSlots)
      of_slots[threadIdx.x] = Row::of_slot(rows, slice.first_slot + threadIdx.x, kDescending);
    __syncthreads();
    slice.steps = 0;
    for (int slot = 0; slot < kSlots; ++slot) slice.steps = max(slice.steps, of_slots[slot].length);
    return slice;
  }
};

PENSTOCK_DEVICE void ClearShared(char* from, int bytes) {
  for (int i = threadIdx.x * 16; i < bytes; i += kThreads * 16) *(uint4*)(from + i) = make_uint4(0, 0, 0, 0);
}

/// A float [G, H] or zeros.
PENSTOCK_DEVICE float BiasAt(const float* bias, int gate, int hidden, int head, int unit) {
  return bias == nullptr ? 0.0f : __ldg(bias + (Index)gate * hidden + head * kHead + unit);
}

/// A thread with one unit also has the products of its neighbour, the other unit of its pair: sums of R h of both units
/// need no shuffle.
constexpr bool kTwins = kUnits == 1 && kWarps > 1;

/// Means over the head, which all threads of the block compute together. A thread has one or two units of one row.
template <bool kBackwardPass>
struct HeadMeans {
  const Thread& at;
  const Values (&of_twin)[G];  // R h of the neighbour
  int number = 0;              // of the exchange
  KeptMeans<8> kept;

  template <int kExchange, int M, bool kProducts = false, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    // Lanes 4 g + t have the same row for all g; with two slots also those of t and t + 2, whose units differ.
    constexpr int columns = kSlots == 2 ? 2 : 4;
    auto part = PartOfUnits<M, N>::of(x, 0, kUnits, [&](int i) { return at.exists(i); });
    if constexpr (kProducts && kTwins && !kBackwardPass) {
      auto twin = PartOfUnits<M, N>::of(of_twin, 0, 1, [&](int) { return at.twin_exists(); });
      JoinBlock<kBackwardPass, kWarps, columns, kHeadUnits, true>(part, number, &twin);
    } else {
      JoinBlock<kBackwardPass, kWarps, columns, kHeadUnits>(part, number);
    }
    part.put(x, square, 0, kUnits);
    if (!kBackwardPass) kept.template take<kExchange>(part, at.g);
  }
  /// Returns whether this thread writes means.
  __device__ __forceinline__ bool writes() const { return at.warp == 0 && (kSlots > 2 || at.t < kSlots); }
};
