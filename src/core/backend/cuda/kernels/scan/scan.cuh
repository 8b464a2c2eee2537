// A linear recurrence over [B, T, C], run once by blocks that hand the state on from chunk to chunk of T.
// Groups of threads share the steps of a tile.

constexpr int kChunk = kGroups * kSteps;
static_assert(kTileChannels <= kThreads, "each channel of a tile has a thread that looks back");

#include "backend/cuda/kernels/scan/look_back.cuh"

constexpr int kRowBytes = kTileChannels * Storage::bytes;  // of one step of a tile
constexpr int kTileBytes = kChunk * kRowBytes;             // of one tensor

/// Starts copies of one tensor's part of a tile, each step `skip` further; steps that do not exist become
/// zero. The threads share the work as copies are widest, not as they will read.
PENSTOCK_DEVICE void CopySteps(const Span& span, const ScanTensor& tensor, int channels, int skip, char* to) {
  constexpr int pieces = kRowBytes / kPiece, rows_at_once = kThreads / pieces;
  static_assert(kChunk % rows_at_once == 0, "copies end where the tile does");
  const int row = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  const int channel = span.first_channel + piece * (kPiece / Storage::bytes);
  const int step = span.chunk_begin + row + skip;
  const int exist = channel < channels ? min(max(span.length - step, 0), kChunk) : 0;
  const char* p = span.start(tensor, channel, step);
  const Index stride = span.stride(tensor) * rows_at_once;
  to += row * kRowBytes + piece * kPiece;
#pragma unroll
  for (int n = 0; n < kChunk; n += rows_at_once) {
    CopyAsync<kPiece>(to + n * kRowBytes, p, n < exist);
    p += stride;
  }
}

/// Copies inputs 0 to kCount - 1 of an op. A recursion, since for a loop the compiler keeps more addresses at once than
/// registers can hold.
template <class Op, int kCount>
PENSTOCK_DEVICE void CopyInputs(const Span& span, const ScanArguments& args, char* to) {
  if constexpr (kCount > 1) CopyInputs<Op, kCount - 1>(span, args, to);
  constexpr int skip = kCount - 1 == Op::kAhead ? 1 : 0;
  CopySteps(span, args.in[kCount - 1], args.channels, skip, to + (kCount - 1) * kTileBytes);
}

/// A tile's values in shared memory, tensor after tensor.
struct TileValues {
  const char* from;

  /// This thread's values at its step k of one input.
  __device__ __forceinline__ Values at(int input, int k) const {
    const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
    return Values::read(from + input * kTileBytes + (group * kSteps + k) * kRowBytes + lane * kVector * Storage::bytes);
  }
};

/// A tile: one chunk of one chain, and what can be known of it before its values are there.
struct Tile {
  Chain chain;
  Span span;
  bool last;        // of its row
  bool beyond;      // the row has no step here
  Tagged entering;  // threads below kTileChannels: what is known of the state that enters

  __device__ __forceinline__ Tile(const ScanArguments& args, unsigned which)
      : chain{{args, (int)(which % (unsigned)args.chains)}, (int)(which / (unsigned)args.chains)},
        span(FindSpan(args, chain.number, chain.chunk * kChunk, threadIdx.x / kLanes)) {
    beyond = chain.chunk > 0 && span.chunk_begin >= span.length;
    last = span.length - span.chunk_begin <= kChunk;
    // Most often this already finds a state, and the block need not look again.
    entering = {0.0f, 0};
    if (!beyond && threadIdx.x < kTileChannels) entering = chain.look(threadIdx.x);
  }
};

/// Has a barrier, whatever the tile. `turn` alternates from tile to tile, as threads that are ahead already write the
/// next one's stretches. `ready`: the state that enters is known; if not, calls between() behind the first look back.
template <class Op, class Between>
PENSTOCK_DEVICE void RunTile(const ScanArguments& args, ScanShared& shared, int turn, const Tile& tile, Op& op,
                             bool ready, const Between& between) {
  const Span& span = tile.span;
  if (tile.beyond) {
    Op::clear_padding(span, args);
    __syncthreads();
    return;
  }
  Stretches& stretches = shared.stretches[turn];
  const int group = threadIdx.x / kLanes;
  stretches.tell(op, span, group);
  __syncthreads();
  // While the owners of channels look back; what is then left is one multiplication.
  Effect before[kVector];
  for (int i = 0; i < kVector; ++i) before[i] = stretches.effect(group, span.tile_channel + i);
  PassOn(shared, stretches, tile.chain, tile.entering, ready, tile.last, between);
  __syncthreads();
  float state[kVector];
  for (int i = 0; i < kVector; ++i) {
    state[i] = Through(before[i].gain, before[i].offset, stretches.carry[span.tile_channel + i]);
  }
  op.start(args, tile.chain, span);
  RunSteps(op, span, state);
  op.finish(args, tile.chain, span);
  if (!tile.last) return;
  StoreLast(tile.chain, span, group, state);
  Op::clear_padding(span, args);
  // Every block of this launch has read the epoch before its chains could come this far.
  if (threadIdx.x == 0 && atomicAdd(&args.header->finished, 1u) + 1 == (unsigned)args.chains) {
    args.header->finished = 0;
    args.header->epoch += 1;
  }
}

/// Takes the next tile: those of earlier chunks go first, so that a block only ever waits for tiles that were taken
/// before its own, by blocks that run. One thread calls this, and not again once it got one beyond the end.
PENSTOCK_DEVICE unsigned TakeTile(const ScanArguments& args) {
  const unsigned taken = atomicAdd(&args.header->tickets, 1u);
  // Each block asks once in vain; this was the last of all.
  if (taken == args.tiles - 1) args.header->tickets = 0;
  return gridDim.x + taken;
}

template <class Op>
PENSTOCK_DEVICE void CopyTile(const ScanArguments& args, char* to, unsigned tile) {
  if (tile < args.tiles) {
    const Span span = FindSpan(args, tile % (unsigned)args.chains, (int)(tile / (unsigned)args.chains) * kChunk,
                               threadIdx.x / kLanes);
    CopyInputs<Op, Op::kInputs>(span, args, to);
  }
  CommitCopies();
}

/// The whole kernel. A block holds the values of one tile in registers while those of the next are on their way to
/// shared memory.
template <class Op>
PENSTOCK_DEVICE void RunScan(const ScanArguments& args) {
  extern __shared__ __align__(16) char memory[];
  constexpr int kValues = Op::kInputs * kTileBytes, kTaker = kThreads - 1;
  static_assert(kValues + sizeof(ScanShared) <= kSharedBytes, "the plan knows how much shared memory there is");
  ScanShared& shared = *(ScanShared*)(memory + kValues);
  CopyTile<Op>(args, memory, blockIdx.x);
  if (threadIdx.x == kTaker) shared.epoch = args.header->epoch;
  unsigned which = blockIdx.x;
  for (int turn = 0; which < args.tiles; turn ^= 1) {
    // Take the next tile as late as its number still comes in time: the earlier a block takes a tile, the more often
    // the blocks that took later tiles wait for it.
    if (threadIdx.x == kTaker) shared.ticket[turn] = TakeTile(args);
    const Tile tile(args, which);
    WaitForCopies<0>();
    __syncthreads();
    Op op;
    op.load(args, tile.span, TileValues{memory});
    // The next tile's values are asked for as soon as this one's are out of their way; but not before this block's
    // first look back, which would come to stand behind them in the queue for memory.
    const bool owner = threadIdx.x < kTileChannels && !tile.beyond;
    const bool ready = __syncthreads_and(!owner || tile.chain.knows(tile.entering, 2 * shared.epoch));
    which = shared.ticket[turn];
    const auto copy_ahead = [&] { CopyTile<Op>(args, memory, which); };
    if (ready) copy_ahead();
    RunTile<Op>(args, shared, turn, tile, op, ready, copy_ahead);
  }
}
