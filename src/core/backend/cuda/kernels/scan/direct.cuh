// A linear recurrence over [B, T, C] whose threads walk all steps of their channels by themselves: the state never
// leaves its registers, nothing passes through shared memory, and no thread waits for another.
//
// A correction finds results of the same recurrence from other first states, and walks both: once their states are the
// same number, so is all that follows, and what has been written stays.
//
// Constants: kCorrects; those of walk.cuh, whose groups of threads here are other rows and tiles of channels.

/// An op's inputs at this thread's steps, from memory; zero where there is no step.
template <class Op>
struct MemoryValues {
  const char* start[Op::kInputs];
  Index stride[Op::kInputs];
  int exist[Op::kInputs];  // steps of this thread

  __device__ __forceinline__ MemoryValues(const ScanArguments& args, const Walk& walk) {
#pragma unroll
    for (int n = 0; n < Op::kInputs; ++n) {
      const int first = walk.begin + (n == Op::kAhead ? 1 : 0);
      start[n] = walk.at(args.in[n], first);
      stride[n] = walk.stride(args.in[n]);
      exist[n] = walk.active ? walk.length - first : 0;
    }
  }

  __device__ __forceinline__ Values at(int input, int k) const {
    return k < exist[input] ? Values::read(start[input] + k * stride[input]) : Values::zero();
  }
};

PENSTOCK_DEVICE bool SameStates(const float (&a)[kVector], const float (&b)[kVector]) {
  bool same = true;
  for (int i = 0; i < kVector; ++i) same = same && a[i] == b[i];
  return same;
}

template <class Op>
PENSTOCK_DEVICE void RunDirect(const ScanArguments& args) {
  const Index number = (Index)blockIdx.x * kGroups + threadIdx.x / kLanes;
  if (number >= args.chains) return;
  const Place place{args, (int)number};
  Walk walk = FindWalk(args, place.number, 0, 0);
  if (!walk.active) return;
  float state[kVector], earlier[kVector];
  for (int i = 0; i < kVector; ++i) {
    state[i] = place.entry(walk.tile_channel + i);
    earlier[i] = place.of(args.earlier, walk.tile_channel + i);
  }
  for (int begin = 0; begin < walk.length; begin += kSteps) {
    if (kCorrects && SameStates(state, earlier)) return;
    walk.move_to(args, begin, 0);
    Op op;
    op.load(args, walk, MemoryValues<Op>(args, walk));
    if constexpr (kCorrects) {
      float gain[kVector];
      for (int i = 0; i < kVector; ++i) gain[i] = 0.0f;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) op.compose(walk, k, gain, earlier);
    }
    op.start(args, place, walk);
    WalkSteps(op, walk, state);
    op.finish(args, place, walk);
  }
  StoreLast(place, walk, 0, state);
  if constexpr (kLengths) {
    // The chunk that holds the end may have padding behind it.
    for (int begin = walk.begin; begin < walk.padded; begin += kSteps) {
      walk.move_to(args, begin, 0);
      Op::clear_padding(walk, args);
    }
  }
}
