// y_t = a_t y_{t-1} + b_t. in[0] is a, in[1] is b, out[0] is y, each [B, T, C]; y may be a or b.

#include "backend/cuda/kernels/scan.cuh"

struct ForwardOp {
  static constexpr int kInputs = 2;
  Values a[kSteps], b[kSteps];
  char* out;
  Index out_stride;

  PENSTOCK_DEVICE void copy(const ScanArguments& args, const Walk& walk, char* to) {
    CopySteps(walk, args.in[0], args.channels, 0, to);
    CopySteps(walk, args.in[1], args.channels, 0, to + kTileBytes);
  }

  __device__ __forceinline__ void load(const char* from) {
    ReadSteps(from, a);
    ReadSteps(from + kTileBytes, b);
  }

  /// The state after step k, of channel i.
  __device__ __forceinline__ float next(const Walk& walk, int k, int i, float state) const {
    const bool clear = kReset && (walk.resets >> k & 1);
    return clear ? b[k].get(i) : __fmaf_rn(a[k].get(i), state, b[k].get(i));
  }

  __device__ __forceinline__ void compose(const Walk& walk, int k, float (&gain)[kVector],
                                          float (&offset)[kVector]) const {
    const bool clear = kReset && (walk.resets >> k & 1);
    for (int i = 0; i < kVector; ++i) {
      offset[i] = next(walk, k, i, offset[i]);
      gain[i] = clear ? 0.0f : gain[i] * a[k].get(i);
    }
  }

  __device__ __forceinline__ void start(const ScanArguments& args, const Chain&, const Walk& walk) {
    out = walk.at(args.out[0], walk.begin);
    out_stride = walk.stride(args.out[0]);
  }

  __device__ __forceinline__ void step(const Walk& walk, int k, float (&state)[kVector]) {
    for (int i = 0; i < kVector; ++i) state[i] = next(walk, k, i, state[i]);
    Values::of(state).store(out);
    out += out_stride;
  }

  PENSTOCK_DEVICE void clear_padding(const Walk& walk, const ScanArguments& args) {
    if constexpr (kLengths) ClearPadding(walk, args.out[0]);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) ScanForward(const __grid_constant__ ScanArguments args) {
  RunScan<ForwardOp>(args);
}
