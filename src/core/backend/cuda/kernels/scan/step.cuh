// One step of a scan cell for a few rows: gates = W x + bias, then h = a h + b, in one launch. A warp owns one channel:
// it reads that channel's row of each gate's weights once for `kRows` rows of x, and sums them in a fixed order.

#include "backend/cuda/kernels/scan/pass.h"
PENSTOCK_PASS(LayerStepPass)

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/scan/step_arguments.h"

constexpr int kVector = kPass.vector, kWarps = kPass.warps, kRows = kPass.rows;

using Part = Vector<Storage, kVector>;

struct Sums {
  float sum[Rule::gates][kRows];

  /// Products of one channel's weights with rows `first` to first + kRows - 1 of x; rows beyond the last repeat it.
  __device__ __forceinline__ void multiply(const StepArguments& args, int channel, int first, int lane) {
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[g][r] = 0.0f;
    }
    for (int i = lane * kVector; i < args.input; i += 32 * kVector) {
      Part w[Rule::gates];
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) {
        w[g] = Part::read(args.weight + (((Index)g * args.hidden + channel) * args.input + i) * Storage::bytes);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Index row = min(first + r, args.rows - 1);
        const Part x = Part::read(args.x + row * args.x_stride + (Index)i * Storage::bytes);
#pragma unroll
        for (int g = 0; g < Rule::gates; ++g) {
          for (int v = 0; v < kVector; ++v) sum[g][r] = __fmaf_rn(w[g].get(v), x.get(v), sum[g][r]);
        }
      }
    }
  }

  /// Adds up what the lanes have, so that every lane has all of it.
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[g][r] += __shfl_xor_sync(0xffffffffu, sum[g][r], apart);
      }
    }
  }
};

PENSTOCK_DEVICE float LoadOne(const char* p) { return Vector<Storage, 1>::read(p).get(0); }

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1) Step(const __grid_constant__ StepArguments args) {
  const int lane = threadIdx.x % 32, channel = blockIdx.x * kWarps + threadIdx.x / 32;
  if (channel >= args.hidden) return;
  for (int first = 0; first < args.rows; first += kRows) {
    Sums sums;
    sums.multiply(args, channel, first, lane);
    sums.add_lanes();
    // Lane r finishes row first + r.
    float wx[Rule::gates];
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
      wx[g] = 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) wx[g] = lane == r ? sums.sum[g][r] : wx[g];
      if (args.bias != nullptr) wx[g] += LoadOne(args.bias + ((Index)g * args.hidden + channel) * Storage::bytes);
    }
    const int row = first + lane;
    if (lane >= kRows || row >= args.rows) continue;
    LearntValues<Rule> learnt;
    for (int k = 0; k < LearntValues<Rule>::count; ++k) {
      learnt.of[k] = LoadOne(args.learnt + ((Index)k * args.hidden + channel) * Storage::bytes);
    }
    float a, b;
    Affine<Rule>(wx, learnt, a, b);
    float* state = args.state + (Index)row * args.hidden + channel;
    const float next[1] = {__fmaf_rn(a, *state, b)};
    *state = next[0];
    Vector<Storage, 1>::of(next).store(args.y + row * args.y_stride + (Index)channel * Storage::bytes);
  }
}
