// Gradients of y_t = a_t y_{t-1} + b_t, walked against the forward direction. in[0] is a, in[1] is y, in[2] is dy;
// out[0] becomes da and out[1] db, each [B, T, C]; da and db may be a and dy, but not y. The state that is carried is
// a_t db_t, the gradient of the state before step t: state_in is the gradient of the last state, state_out that of the
// first, and `entry` the first state itself.

#include "backend/cuda/kernels/scan.cuh"

struct BackwardOp {
  static constexpr int kInputs = 3;
  Values a[kSteps], before[kSteps], dy[kSteps];
  char *da, *db;
  Index da_stride, db_stride;
  const float* entry;
  int entry_step;  // the step of this thread that is the first in time, or -1

  PENSTOCK_DEVICE void copy(const ScanArguments& args, const Walk& walk, char* to) {
    CopySteps(walk, args.in[0], args.channels, 0, to);
    CopySteps(walk, args.in[2], args.channels, 0, to + kTileBytes);
    // The state before a step is the output of the walk's next one.
    CopySteps(walk, args.in[1], args.channels, 1, to + 2 * kTileBytes);
  }

  __device__ __forceinline__ void load(const char* from) {
    ReadSteps(from, a);
    ReadSteps(from + kTileBytes, dy);
    ReadSteps(from + 2 * kTileBytes, before);
  }

  __device__ __forceinline__ void compose(const Walk& walk, int k, float (&gain)[kVector],
                                          float (&offset)[kVector]) const {
    const bool clear = kReset && (walk.resets >> k & 1);
    for (int i = 0; i < kVector; ++i) {
      offset[i] = clear ? 0.0f : a[k].get(i) * (dy[k].get(i) + offset[i]);
      gain[i] = clear ? 0.0f : gain[i] * a[k].get(i);
    }
  }

  __device__ __forceinline__ void start(const ScanArguments& args, const Chain& chain, const Walk& walk) {
    da = walk.at(args.out[0], walk.begin);
    db = walk.at(args.out[1], walk.begin);
    da_stride = walk.stride(args.out[0]);
    db_stride = walk.stride(args.out[1]);
    entry = args.entry == nullptr ? nullptr : args.entry + chain.states() + walk.tile_channel;
    entry_step = walk.valid > 0 && walk.begin + walk.valid == walk.length ? walk.valid - 1 : -1;
  }

  __device__ __forceinline__ void step(const Walk& walk, int k, float (&state)[kVector]) {
    const bool clear = kReset && (walk.resets >> k & 1);
    float gradient[kVector], product[kVector];
    for (int i = 0; i < kVector; ++i) {
      float previous = before[k].get(i);
      if (k == entry_step && entry != nullptr) previous = entry[i];
      gradient[i] = dy[k].get(i) + state[i];
      product[i] = clear ? 0.0f : gradient[i] * previous;
      state[i] = clear ? 0.0f : a[k].get(i) * gradient[i];
    }
    Values::of(product).store(da);
    Values::of(gradient).store(db);
    da += da_stride;
    db += db_stride;
  }

  PENSTOCK_DEVICE void clear_padding(const Walk& walk, const ScanArguments& args) {
    if constexpr (kLengths) {
      ClearPadding(walk, args.out[0]);
      ClearPadding(walk, args.out[1]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    ScanBackward(const __grid_constant__ ScanArguments args) {
  RunScan<BackwardOp>(args);
}
