// Adds to D what float_pairs.cuh left out: the products of unfit rows of A and of unfit columns of B, in plain floats.
// A block takes kLines rows or columns of the other matrix after the other, and multiplies them by four unfit ones at a
// time.
//
// Constants of the plan: kTransposedA, kTransposedB (A lies as [K, M], B as [N, K]).

#include "backend/cuda/kernels/product/float_product_arguments.h"
#include "backend/cuda/kernels/product/paired_matrix.h"
#include "backend/cuda/kernels/product/unfit.cuh"

#include "backend/cuda/kernels/product/float_pairs_arguments.h"

/// Few lines of a block and many parts of a line's sum: one unfit row of a long K is all there is to do, mostly.
constexpr int kLines = 8, kParts = 64, kAtOnce = 4;

struct RepairShared {
  float sum[kAtOnce][kParts][kLines];
};

/// A's rows or B's columns.
template <bool kAlongK>
struct Lines {
  const float* matrix;
  Index stride;

  __device__ __forceinline__ const float* at(Index line, Index k) const {
    return matrix + (kAlongK ? line * stride + k : k * stride + line);
  }
};

/// The products of four unfit lines by one of the block's. Neighbouring threads read neighbouring floats.
template <bool kUnfitAlongK, bool kAlongK>
PENSTOCK_DEVICE void SumParts(const Lines<kUnfitAlongK>& unfit, const int (&number)[kAtOnce],
                              const Lines<kAlongK>& lines, Index begin, Index end, Index k, RepairShared& shared) {
  const int part = kAlongK ? threadIdx.x % kParts : threadIdx.x / kLines;
  const int line = kAlongK ? threadIdx.x / kParts : threadIdx.x % kLines;
  const Index own = min(begin + line, end - 1);
  float sum[kAtOnce] = {};
#pragma unroll 8
  for (Index inner = part; inner < k; inner += kParts) {
    const float factor = __ldg(lines.at(own, inner));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sum[i] = fmaf(__ldg(unfit.at(number[i], inner)), factor, sum[i]);
    }
  }
  for (int i = 0; i < kAtOnce; ++i) shared.sum[i][part][line] = sum[i];
}

/// Multiplies all unfit lines of one matrix by the block's lines of the other. `add(unfit, line, sum)` takes the
/// results.
template <bool kUnfitAlongK, bool kAlongK, class Add>
PENSTOCK_DEVICE void Repair(const PairedMatrix& pairs, const Lines<kUnfitAlongK>& unfit, const Lines<kAlongK>& lines,
                            Index begin, Index end, Index k, RepairShared& shared, const Add& add) {
  const int count = __ldcg(pairs.count);
#pragma unroll 1
  for (int first = 0; first < count; first += kAtOnce) {
    int number[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) number[i] = __ldcg(pairs.list + min(first + i, count - 1));
    SumParts(unfit, number, lines, begin, end, k, shared);
    __syncthreads();
    const int line = threadIdx.x % kLines, which = threadIdx.x / kLines;
    if (which < min(kAtOnce, count - first) && begin + line < end) {
      float sum = 0.0f;
      for (int part = 0; part < kParts; ++part) sum += shared.sum[which][part][line];
      add(__ldcg(pairs.list + first + which), begin + line, sum);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(kLines* kParts, 1)
    RepairProduct(const __grid_constant__ FloatPairsArguments args) {
  const FloatProductArguments& product = args.product;
  if (TooManyUnfit(product.unfit)) return;
  extern __shared__ __align__(16) char memory[];
  RepairShared& shared = *(RepairShared*)memory;
  const Lines<!kTransposedA> rows{product.a, product.a_stride};
  const Lines<kTransposedB> columns{product.b, product.b_stride};
  const Index over_n = (product.n + kLines - 1) / kLines, over_m = (product.m + kLines - 1) / kLines;
  // Columns by unfit rows, then rows by unfit columns.
  const Index begin = __ldcg(args.a.count) > 0 ? 0 : over_n, end = over_n + (__ldcg(args.b.count) > 0 ? over_m : 0);
#pragma unroll 1
  for (Index place = begin + blockIdx.x; place < end; place += gridDim.x) {
    if (place < over_n) {
      Repair(args.a, rows, columns, place * kLines, product.n, product.k, shared,
             [&](Index m, Index n, float sum) { product.d[m * product.d_stride + n] += sum; });
    } else {
      Repair(args.b, columns, rows, (place - over_n) * kLines, product.m, product.k, shared,
             [&](Index n, Index m, float sum) {
               if (__ldcg(args.a.unfit + m) == 0) product.d[m * product.d_stride + n] += sum;
             });
    }
  }
}
