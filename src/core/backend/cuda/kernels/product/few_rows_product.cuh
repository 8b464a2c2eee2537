// D = A B^T + bias for a few rows of A: B is read once, each of its rows by a group of neighbouring threads, and no
// tile of a matrix unit would be full. Sums in float, in a fixed order.
//
// Constants: Storage (of A, B and the bias), Result, kRows (of A), kVector (neighbouring values of a thread), kLanes
// (threads of an output, a power of two up to 32), kThreads.

#include "backend/cuda/kernels/product/few_rows_product_arguments.h"

using Values = Vector<Storage, kVector>;

extern "C" __global__ void __launch_bounds__(kThreads) FewRowsProduct(const __grid_constant__ FewRowsArguments args) {
  WaitForKernelBefore();
  const int lane = threadIdx.x % kLanes;
  const int wanted = (int)blockIdx.x * (kThreads / kLanes) + (int)threadIdx.x / kLanes;
  const int column = min(wanted, args.n - 1);  // every thread of a warp takes part in its exchanges
  const char* const b = args.b + (Index)column * args.b_stride * Storage::bytes;
  float sum[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) sum[row] = 0.0f;
#pragma unroll 4
  for (int k = lane * kVector; k < args.k; k += kLanes * kVector) {
    const Values of_b = Values::read(b + (Index)k * Storage::bytes);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const Values of_a = Values::read(args.a + (row * args.a_stride + k) * Storage::bytes);
      for (int i = 0; i < kVector; ++i) sum[row] = __fmaf_rn(of_a.get(i), of_b.get(i), sum[row]);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], apart);
  }
  if (lane != 0 || wanted >= args.n) return;
  const float bias =
      args.bias == nullptr ? 0.0f : Vector<Storage, 1>::read(args.bias + (Index)column * Storage::bytes).get(0);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float result[1] = {sum[row] + bias};
    Vector<Result, 1>::of(result).put(args.d + (row * args.d_stride + column) * Result::bytes);
  }
}
