#pragma once

// Runs the text of kernels on threads of the CPU. A test includes this header, defines the constants of a kernel and
// includes its text. Blocks run one after the other, the threads of a block at the same time. Headers of the same names
// in this folder replace those whose instructions only a GPU has.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define PENSTOCK_DEVICE static inline
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __shared__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

using Index = long long;

extern "C" {
/// Shared memory of the block that runs.
extern char memory[];
}

namespace penstock::test {

constexpr int kWarpThreads = 32, kSharedBytes = 256 << 10;

struct Place {
  unsigned x = 0;
};

/// A barrier at which some threads wait and others only arrive (bar.sync, bar.arrive).
class NamedBarrier {
 public:
  void arrive(int threads, bool waits) {
    std::unique_lock lock(guard_);
    const unsigned phase = phase_;
    if (++arrived_ == threads) {
      arrived_ = 0, ++phase_;
      changed_.notify_all();
    } else if (waits) {
      changed_.wait(lock, [&] { return phase_ != phase; });
    }
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  int arrived_ = 0;
  unsigned phase_ = 0;
};

struct Warp {
  std::barrier<> barrier{kWarpThreads};
  std::uint64_t value[kWarpThreads] = {};
};

/// What the threads of a block share besides memory.
struct Block {
  explicit Block(int threads) : barrier(threads) {
    for (int warp = 0; warp < threads / kWarpThreads; ++warp) warps.push_back(std::make_unique<Warp>());
  }
  std::barrier<> barrier;
  NamedBarrier named[16];
  std::vector<std::unique_ptr<Warp>> warps;
};

inline Block*& current_block() {
  static Block* block = nullptr;
  return block;
}

}  // namespace penstock::test

inline thread_local penstock::test::Place threadIdx, blockIdx, gridDim;

namespace penstock::test {

/// Runs a kernel with its parameters.
template <class Kernel, class Parameters>
void run_kernel(const Kernel& kernel, int blocks, int threads, const Parameters& parameters) {
  std::unique_ptr<Block> block;
  std::barrier all(threads);
  const auto run = [&](int thread) {
    threadIdx.x = static_cast<unsigned>(thread), gridDim.x = static_cast<unsigned>(blocks);
    for (int number = 0; number < blocks; ++number) {
      blockIdx.x = static_cast<unsigned>(number);
      if (thread == 0) {
        block = std::make_unique<Block>(threads);
        current_block() = block.get();
        std::memset(memory, 0xff, kSharedBytes);  // NaN
      }
      all.arrive_and_wait();
      kernel(parameters);
      block->barrier.arrive_and_drop();  // a thread that has ended holds up nobody
      all.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 0; thread < threads; ++thread) others.emplace_back(run, thread);
}

inline Warp& current_warp() { return *current_block()->warps[threadIdx.x / kWarpThreads]; }

}  // namespace penstock::test

inline void __syncthreads() { penstock::test::current_block()->barrier.arrive_and_wait(); }
inline void __syncwarp() { penstock::test::current_warp().barrier.arrive_and_wait(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int other) {
  penstock::test::Warp& warp = penstock::test::current_warp();
  const unsigned lane = threadIdx.x % penstock::test::kWarpThreads;
  std::memcpy(&warp.value[lane], &value, sizeof value);
  warp.barrier.arrive_and_wait();
  std::memcpy(&value, &warp.value[lane ^ static_cast<unsigned>(other)], sizeof value);
  warp.barrier.arrive_and_wait();
  return value;
}

struct int2 {
  int x, y;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
inline int atomicAdd(int* to, int value) { return std::atomic_ref(*to).fetch_add(value); }
inline int atomicExch(int* to, int value) { return std::atomic_ref(*to).exchange(value); }

template <class A, class B>
auto min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
auto max(A a, B b) {
  return a < b ? b : a;
}
using std::fabs;
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline std::size_t __cvta_generic_to_shared(const void* place) {
  return static_cast<std::size_t>(static_cast<const char*>(place) - memory);
}

/// Two float16 in a word, as prelude.cuh has them.
struct F16 {
  static constexpr int bytes = 2;
  static float widen(unsigned half) {
    const auto bits = static_cast<unsigned short>(half);
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
  }
  static unsigned bits_of(float value) { return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value)); }
  static unsigned narrow(float low, float high) { return bits_of(low) | bits_of(high) << 16; }
};
