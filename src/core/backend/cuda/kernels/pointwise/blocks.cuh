// Sums over a block of kThreads threads, in a fixed order.

template <class T>
PENSTOCK_DEVICE T SumOfBlock(T x) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  __shared__ T part[kThreads / 32];
  __syncthreads();  // the one before has been read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = part[0];
  for (int i = 1; i < kThreads / 32; ++i) x += part[i];
  return x;
}
