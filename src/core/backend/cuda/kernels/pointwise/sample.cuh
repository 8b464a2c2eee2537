// Draws a token of each row of logits: among the top_k likeliest, and of those the smallest set that has the share
// top_p, by e^(logit / temperature). One block a row, which sorts its logits, equal ones in the order of tokens.
//
// Constants: Logits, kClasses, kSize (a power of two, at least kClasses), kShared (they fit shared memory), kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "base/counter_random.h"

using Key = unsigned long long;

/// Orders as logits do, and below that as tokens do, the first being the greatest.
PENSTOCK_DEVICE Key KeyOf(float logit, int token) {
  const unsigned bits = __float_as_uint(logit + 0.0f);  // one zero
  const unsigned order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ((Key)order << 32) | (0xffffffffu - (unsigned)token);
}
PENSTOCK_DEVICE int TokenOf(Key key) { return (int)(0xffffffffu - (unsigned)key); }
PENSTOCK_DEVICE float LogitOf(Key key) {
  const unsigned order = (unsigned)(key >> 32);
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/// The greatest first, by the exchanges of a bitonic network.
PENSTOCK_DEVICE void SortByExchanges(Key* keys) {
  for (int size = 2; size <= kSize; size *= 2) {
    for (int apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < kSize / 2; i += kThreads) {
        const int low = 2 * i - (i & (apart - 1)), high = low + apart;
        const Key a = keys[low], b = keys[high];
        if ((a < b) == ((low & size) == 0)) keys[low] = b, keys[high] = a;
      }
    }
  }
  __syncthreads();
}

/// Sorts the keys, greatest first, by counting how many come before each: two barriers instead of dozens, so quicker
/// for few keys. Keys differ, except those beyond kClasses, which come last.
PENSTOCK_DEVICE void SortByRanks(Key* keys) {
  constexpr int kMine = (kSize + kThreads - 1) / kThreads;
  Key mine[kMine];
  int rank[kMine];
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kMine; ++n) {
    const int i = n * kThreads + threadIdx.x;
    mine[n] = i < kSize ? keys[i] : 0;
    rank[n] = 0;
  }
#pragma unroll 8
  for (int i = 0; i < kClasses; ++i) {
    const Key other = keys[i];
#pragma unroll
    for (int n = 0; n < kMine; ++n) rank[n] += other > mine[n] ? 1 : 0;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kMine; ++n) {
    if (n * kThreads + (int)threadIdx.x < kClasses) keys[rank[n]] = mine[n];
  }
  __syncthreads();
}

PENSTOCK_DEVICE void Sort(Key* keys) {
  if constexpr (kShared && kSize <= 512) {
    SortByRanks(keys);
  } else {
    SortByExchanges(keys);
  }
}

/// sums[i] = the weights of the i + 1 likeliest.
PENSTOCK_DEVICE void SumWeights(const Key* keys, int count, double temperature, double* sums) {
  __shared__ double of_warp[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const double likeliest = (double)LogitOf(keys[0]);
  double before = 0.0;
  for (int first = 0; first < count; first += kThreads) {
    const int i = first + threadIdx.x;
    double sum = i < count ? exp(((double)LogitOf(keys[i]) - likeliest) / temperature) : 0.0;
    for (int apart = 1; apart < 32; apart *= 2) {
      const double other = __shfl_up_sync(0xffffffffu, sum, apart);
      if (lane >= apart) sum += other;
    }
    __syncthreads();  // the round before has been read
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    double here = before;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w == warp && i < count) sums[i] = here + sum;
      here += of_warp[w];
    }
    before = here;
  }
  __syncthreads();
}

/// The first of `count` sums that reaches `wanted`, or exceeds it; count if none does.
template <bool kExceeds>
PENSTOCK_DEVICE int FirstSum(const double* sums, int count, double wanted) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (kExceeds ? sums[middle] > wanted : sums[middle] >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

PENSTOCK_DEVICE int Draw(const Key* keys, const double* sums, int count, double top_p, double random) {
  const int kept = min(FirstSum<false>(sums, count, top_p * sums[count - 1]) + 1, count);
  return TokenOf(keys[min(FirstSum<true>(sums, kept, random * sums[kept - 1]), kept - 1)]);
}

PENSTOCK_DEVICE void Keep(const SampleArguments& args, Index stream, Key counter, int token) {
  args.tokens[stream] = token;
  if (args.history != nullptr) {
    args.history[stream * args.history_length + (Index)(counter % (Key)args.history_length)] = token;
  }
  args.counters[stream] = counter + 1;
}

extern "C" __global__ void __launch_bounds__(kThreads) Sample(const __grid_constant__ SampleArguments args) {
  WaitForKernelBefore();
  __shared__ Key shared_keys[kShared ? kSize : 1];
  __shared__ double shared_sums[kShared ? kSize : 1];
  const Index stream = blockIdx.x;
  Key* const keys = kShared ? shared_keys : args.sort + stream * kSize;
  double* const sums = kShared ? shared_sums : args.sums + stream * kSize;
  bool broken = false;
  for (int i = threadIdx.x; i < kSize; i += kThreads) {
    const float logit = i < kClasses ? LoadOne<Logits>(args.logits, stream * args.stride + i) : 0.0f;
    broken |= !Finite(logit);
    keys[i] = i < kClasses ? KeyOf(logit, i) : 0;
  }
  broken = __syncthreads_or(broken);
  if (!broken) {
    Sort(keys);
    const int count = args.top_k > 0 ? min(args.top_k, kClasses) : kClasses;
    if (args.temperature > 0.0) SumWeights(keys, count, args.temperature, sums);
    if (threadIdx.x == 0) {
      const Key counter = args.counters[stream];
      const double random = penstock::counter_random::uniform(args.keys[stream], counter);
      const int token = args.temperature > 0.0 ? Draw(keys, sums, count, args.top_p, random) : TokenOf(keys[0]);
      Keep(args, stream, counter, token);
    }
  } else if (threadIdx.x == 0) {
    Keep(args, stream, args.counters[stream], -1);
  }
}
