// A linear recurrence over [B, T, C] whose threads run all steps of their channels by themselves: the state never
// leaves its registers, nothing passes through shared memory, and no thread waits for another.
//
// A correction finds results of the same recurrence from other first states, and runs both: once their states are the
// same number, so is all that follows, and what has been written stays.
//
// Groups of threads have other rows and tiles of channels.

/// An op's inputs at this thread's steps, from memory; zero where there is no step.
template <class Op>
struct MemoryValues {
  const char* start[Op::kInputs];
  Index stride[Op::kInputs];
  int exist[Op::kInputs];  // steps of this thread

  __device__ __forceinline__ MemoryValues(const ScanArguments& args, const Span& span) {
#pragma unroll
    for (int n = 0; n < Op::kInputs; ++n) {
      const int first = span.begin + (n == Op::kAhead ? 1 : 0);
      start[n] = span.at(args.in[n], first);
      stride[n] = span.stride(args.in[n]);
      exist[n] = span.active ? span.length - first : 0;
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
  Span span = FindSpan(args, place.number, 0, 0);
  if (!span.active) return;
  float state[kVector], earlier[kVector];
  for (int i = 0; i < kVector; ++i) {
    state[i] = place.entry(span.tile_channel + i);
    earlier[i] = place.of(args.earlier, span.tile_channel + i);
  }
  for (int begin = 0; begin < span.length; begin += kSteps) {
    if (kCorrects && SameStates(state, earlier)) return;
    span.move_to(args, begin, 0);
    Op op;
    op.load(args, span, MemoryValues<Op>(args, span));
    if constexpr (kCorrects) {
      float gain[kVector];
      for (int i = 0; i < kVector; ++i) gain[i] = 0.0f;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) op.compose(span, k, gain, earlier);
    }
    op.start(args, place, span);
    RunSteps(op, span, state);
    op.finish(args, place, span);
  }
  StoreLast(place, span, 0, state);
  if constexpr (kLengths) {
    // The chunk that holds the end may have padding behind it.
    for (int begin = span.begin; begin < span.padded; begin += kSteps) {
      span.move_to(args, begin, 0);
      Op::clear_padding(span, args);
    }
  }
}
