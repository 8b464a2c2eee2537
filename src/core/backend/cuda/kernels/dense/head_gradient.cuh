// Gradients of the recurrent matrices of several heads: for each head the product of the gates' gradients, transposed,
// with what the matrix was multiplied by, over a chunk of all positions. A block makes a tile of one head's matrix; the
// chunks are added up by a launch of their own (sum_splits.cuh).
//
// Constants of the plan: Storage, kHead (D), kGates (how many), kTileN (columns of a tile), kAccess, kStages,
// kSharedBytes.

#include "backend/cuda/kernels/dense/arguments.h"
#include "backend/cuda/kernels/dense/fragments.cuh"

constexpr int kTileM = 256, kStep = 32;  // units of gates of a tile, and positions of a stage
constexpr int kWarpsM = 4, kWarpsN = 2;  // of a block
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kM = kTileM / kWarpsM / 16, kN = kTileN / kWarpsN / 8;  // tiles of 16 x 8 sums of a warp
constexpr int kAll = kGates * kHead;                                  // units of all gates
constexpr int kTilesM = (kAll + kTileM - 1) / kTileM, kTilesN = (kHead + kTileN - 1) / kTileN;
/// Values from position to position: 16 or 32 bytes beyond whole lines, so that eight (or four) positions lie in other
/// banks.
constexpr int kPitchM = kTileM + 8, kPitchN = kTileN + 8;
constexpr int kStageBytes = kStep * (kPitchM + kPitchN) * Storage::bytes;
static_assert(kSharedBytes == kStages * kStageBytes, "the host counts as the kernel does");

/// Four blocks of 8 x 8 halves, transposed: this thread names the row of one.
PENSTOCK_DEVICE void LoadTransposed(unsigned (&to)[4], const char* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

struct HeadGradient {
  const HeadGradientArguments& args;
  char* shared;
  int head, first_m, first_n;
  Index begin, end;
  float sum[kM][kN][4];

  __device__ __forceinline__ char* stage_at(int stage) const { return shared + stage * kStageBytes; }

  /// Starts copies of kStep positions; zeros beyond the last.
  __device__ __forceinline__ void fetch(int stage, Index position) const {
    constexpr int values = kAccess / Storage::bytes;
    char* const to = stage_at(stage);
#pragma unroll 4
    for (int at = threadIdx.x; at < kStep * (kTileM / values); at += kThreads) {
      const int of = at / (kTileM / values), m = at % (kTileM / values) * values, all = first_m + m;
      const char* from = args.gates + (position + of) * args.gate_stride +
                         ((Index)(all / kHead) * args.hidden + head * kHead + all % kHead) * Storage::bytes;
      CopyAsync<kAccess>(to + (of * kPitchM + m) * Storage::bytes, from, position + of < end && all < kAll);
    }
#pragma unroll 4
    for (int at = threadIdx.x; at < kStep * (kTileN / values); at += kThreads) {
      const int of = at / (kTileN / values), n = at % (kTileN / values) * values;
      const char* from =
          args.operand + (position + of) * args.operand_stride + (Index)(head * kHead + first_n + n) * Storage::bytes;
      CopyAsync<kAccess>(to + (kStep * kPitchM + of * kPitchN + n) * Storage::bytes, from,
                         position + of < end && first_n + n < kHead);
    }
  }

  /// 16 positions of halves.
  __device__ __forceinline__ void multiply_halves(const char* a_tile, const char* b_tile, int m, int n) {
    const int lane = threadIdx.x % 32, row = lane % 8, block = lane / 8;
    unsigned a[kM][4], b[kN / 2][4];
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      LoadTransposed(a[i], a_tile + ((row + block / 2 * 8) * kPitchM + m + 16 * i + block % 2 * 8) * 2);
    }
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      LoadTransposed(b[i], b_tile + ((row + block % 2 * 8) * kPitchN + n + 16 * i + block / 2 * 8) * 2);
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        MultiplyHalves(sum[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1],
                       Storage());
      }
    }
  }

  /// 8 positions of floats.
  __device__ __forceinline__ void multiply_floats(const char* a_tile, const char* b_tile, int m, int n) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const auto at = [&](const char* tile, int pitch, int k, int column) {
      return *(const unsigned*)(tile + (k * pitch + column) * 4);
    };
    unsigned b[kN][2];
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      b[j][0] = at(b_tile, kPitchN, t, n + 8 * j + g), b[j][1] = at(b_tile, kPitchN, t + 4, n + 8 * j + g);
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      const int row = m + 16 * i + g;
      const unsigned a0 = AsFactor(at(a_tile, kPitchM, t, row), Storage());
      const unsigned a1 = AsFactor(at(a_tile, kPitchM, t, row + 8), Storage());
      const unsigned a2 = AsFactor(at(a_tile, kPitchM, t + 4, row), Storage());
      const unsigned a3 = AsFactor(at(a_tile, kPitchM, t + 4, row + 8), Storage());
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        // Sums of a few positions, added to the others in plain float arithmetic.
        float part[4] = {};
        MultiplyHalves(part, a0, a1, a2, a3, b[j][0], b[j][1], Storage());
#pragma unroll
        for (int v = 0; v < 4; ++v) sum[i][j][v] += part[v];
      }
    }
  }

  __device__ __forceinline__ void multiply(int stage) {
    const int warp = threadIdx.x / 32, m = warp % kWarpsM * (kTileM / kWarpsM), n = warp / kWarpsM * (kTileN / kWarpsN);
    const char* a_tile = stage_at(stage);
    const char* b_tile = a_tile + kStep * kPitchM * Storage::bytes;
    constexpr int at_once = Storage::bytes == 2 ? 16 : 8, unrolled = Storage::bytes == 2 ? 2 : 1;
#pragma unroll unrolled
    for (int k = 0; k < kStep; k += at_once) {
      const char* a = a_tile + k * kPitchM * Storage::bytes;
      const char* b = b_tile + k * kPitchN * Storage::bytes;
      if constexpr (Storage::bytes == 2) {
        multiply_halves(a, b, m, n);
      } else {
        multiply_floats(a, b, m, n);
      }
    }
  }

  __device__ __forceinline__ void store(int chunk) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m = first_m + warp % kWarpsM * (kTileM / kWarpsM) + lane / 4;
    const int n = first_n + warp / kWarpsM * (kTileN / kWarpsN) + lane % 4 * 2;
    float* const to = args.partial + ((Index)chunk * args.heads + head) * args.gates_of_all * kHead * kHead;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int row = m + 16 * i + v / 2 * 8, column = n + 8 * j + v % 2;
          if (row < kAll && column < kHead) to[(Index)row * kHead + column] = sum[i][j][v];
        }
      }
    }
  }

  __device__ __forceinline__ void run() {
    int block = blockIdx.x;
    first_n = block % kTilesN * kTileN, block /= kTilesN;
    first_m = block % kTilesM * kTileM, block /= kTilesM;
    head = block % args.heads;
    const int chunk = block / args.heads;
    begin = chunk * args.chunk, end = min(begin + args.chunk, args.positions);
    for (int stage = 0; stage < kStages - 1; ++stage) {
      fetch(stage, begin + stage * kStep);
      CommitCopies();
    }
    int stage = 0;
    for (Index position = begin; position < end; position += kStep) {
      WaitForCopies<kStages - 2>();
      __syncthreads();
      fetch((stage + kStages - 1) % kStages, position + (kStages - 1) * kStep);
      CommitCopies();
      multiply(stage);
      stage = (stage + 1) % kStages;
    }
    store(chunk);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    DenseHeadGradient(const __grid_constant__ HeadGradientArguments args) {
  extern __shared__ __align__(16) char shared[];
  HeadGradient gradient{args, shared};
  gradient.run();
}
