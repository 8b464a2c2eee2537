// Code of both passes whose steps are a matrix product and this kernel: each thread has one unit of one row.
//
// Where units read means over their head, the threads of a block beyond its units repeat the last one.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(StepPass)

#include "backend/cuda/kernels/dense/unit.cuh"

constexpr int kHead = kPass.head, kThreads = kPass.threads;
constexpr bool kMeans = kPass.means;
static_assert(!kMeans || kHead <= kThreads);
constexpr int kValues = 1;
#include "backend/cuda/kernels/dense/means.cuh"

/// The unit and row of a thread.
struct Place {
  Row row;
  int channel;  // of H
  int head, unit;
  Index state;  // in [B, H]
  bool writes;  // no other thread has the unit

  PENSTOCK_DEVICE Place here(const DenseRows& rows, int hidden) {
    Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
    Place p;
    p.writes = !kMeans || (int)threadIdx.x < kHead;
    if constexpr (kMeans) at = (Index)blockIdx.x * kHead + min((int)threadIdx.x, kHead - 1);
    const int number = (int)(at / hidden);
    p.row = Row::of_slot(rows, number, kDescending);
    p.channel = (int)(at % hidden);
    p.head = p.channel / kHead, p.unit = p.channel % kHead;
    p.state = at;
    return p;
  }
  __device__ __forceinline__ bool exists() const { return row.number >= 0; }
  /// Returns an index in [B, heads, G, D].
  __device__ __forceinline__ Index gate(int g, int hidden) const {
    return (Index)row.number * kGates * hidden + ((Index)head * kGates + g) * kHead + unit;
  }
  /// Returns the address of this unit in a tensor [B, T, values, H] of halves or floats.
  __device__ __forceinline__ char* at(const DenseTensor& tensor, int step, int value, int hidden) const {
    return row.at(tensor, step, kDescending) + ((Index)value * hidden + channel) * kBytes;
  }
  __device__ __forceinline__ float* float_at(const DenseTensor& tensor, int step, int value, int hidden) const {
    return (float*)row.at(tensor, step, kDescending) + (Index)value * hidden + channel;
  }
  __device__ __forceinline__ bool resets(const DenseRows& rows, int step) const { return ResetsAt(rows, row, step); }
};

/// Means over the head, which all threads of the block compute together.
template <bool kBackwardPass>
struct StepMeans {
  int number = 0;  // of the exchange
  KeptMeans<8> kept;

  template <int kExchange, int M, bool kProducts = false, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    auto part = PartOfUnits<M, N>::of(x, 0, 1, [](int) { return (int)threadIdx.x < kHead; });
    JoinBlock<kBackwardPass, kThreads / 32, 1, 32>(part, number);
    part.put(x, square, 0, 1);
    if (!kBackwardPass) kept.template take<kExchange>(part, (int)threadIdx.x);
  }
};

/// The values of a thread, as cells with means take them, and back.
template <int count>
PENSTOCK_DEVICE void ToValues(const Real (&from)[count], Values (&to)[count]) {
  for (int i = 0; i < count; ++i) to[i].of[0] = from[i];
}
template <int count>
PENSTOCK_DEVICE void FromValues(const Values (&from)[count], Real (&to)[count]) {
  for (int i = 0; i < count; ++i) to[i] = from[i].of[0];
}
