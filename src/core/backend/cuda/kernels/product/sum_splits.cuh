// Adds up what splits of K gave to a product and to the sums of its epilogue, in the order of the splits in each of
// kGroups parts, and then in the order of the parts.
//
// Constants of the plan: kGroups (parts), kAcross (elements of a block).

#include "backend/cuda/kernels/product/paired_matrix.h"
#include "backend/cuda/kernels/product/sum_splits_arguments.h"
#include "backend/cuda/kernels/product/unfit.cuh"

extern "C" __global__ void __launch_bounds__(kAcross* kGroups, 1)
    SumSplits(const __grid_constant__ SumSplitsArguments args) {
  if (args.unfit != nullptr && TooManyUnfit(args.unfit)) return;
  __shared__ float part[kGroups][kAcross];
  const int lane = threadIdx.x % kAcross, group = threadIdx.x / kAcross;
  const Index product = args.m * args.n, all = product + (args.sums == nullptr ? 0 : args.m);
  const Index element = (Index)blockIdx.x * kAcross + lane;
  float sum = 0.0f;
  if (element < all) {
    const int begin = args.splits * group / kGroups, end = args.splits * (group + 1) / kGroups;
#pragma unroll 8
    for (int split = begin; split < end; ++split) sum += __ldcg(&args.partial[split * all + element]);
  }
  part[group][lane] = sum;
  __syncthreads();
  if (group > 0 || element >= all) return;
#pragma unroll
  for (int other = 1; other < kGroups; ++other) sum += part[other][lane];
  if (element >= product) {
    args.sums[element - product] = sum;
    return;
  }
  float* d = args.d + element / args.n * args.d_stride + element % args.n;
  *d = sum + (args.add ? *d : 0.0f);
}
