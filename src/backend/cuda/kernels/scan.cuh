// A linear recurrence over [B, T, C], walked once by blocks that hand the state on from chunk to chunk of T.
//
// Constants beside those of walk.cuh, whose groups of threads here share the steps of a tile: kDepth (tiles on their way to
// shared memory), kPiece (bytes of one copy), kWindow, kBlocks (blocks of a multiprocessor), kSharedBytes.

constexpr int kChunk = kGroups * kSteps;
static_assert(kTileChannels <= kThreads, "each channel of a tile has a thread that looks back");

#include "backend/cuda/kernels/look_back.cuh"

constexpr int kRowBytes = kTileChannels * Storage::bytes;  // of one step of a tile
constexpr int kTileBytes = kChunk * kRowBytes;              // of one tensor

/// Starts copies of one tensor's part of a tile, each step `skip` further on the walk; steps that do not exist become
/// zero. The threads share the work as copies are widest, not as they will read.
PENSTOCK_DEVICE void CopySteps(const Walk& walk, const ScanTensor& tensor, int channels, int skip, char* to) {
  constexpr int pieces = kRowBytes / kPiece, rows_at_once = kThreads / pieces;
  static_assert(kChunk % rows_at_once == 0, "copies end where the tile does");
  const int row = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  const int channel = walk.first_channel + piece * (kPiece / Storage::bytes);
  const int step = walk.chunk_begin + row + skip;
  const int exist = channel < channels ? min(max(walk.length - step, 0), kChunk) : 0;
  const char* p = walk.start(tensor, channel, step);
  const Index stride = walk.stride(tensor) * rows_at_once;
  to += row * kRowBytes + piece * kPiece;
#pragma unroll
  for (int n = 0; n < kChunk; n += rows_at_once) {
    CopyAsync<kPiece>(to + n * kRowBytes, p, n < exist);
    p += stride;
  }
}

/// The same of inputs 0 to kCount - 1 of an op. Not a loop, for which the compiler keeps more addresses at once than
/// registers can hold.
template <class Op, int kCount>
PENSTOCK_DEVICE void CopyInputs(const Walk& walk, const ScanArguments& args, char* to) {
  if constexpr (kCount > 1) CopyInputs<Op, kCount - 1>(walk, args, to);
  constexpr int skip = kCount - 1 == Op::kAhead ? 1 : 0;
  CopySteps(walk, args.in[kCount - 1], args.channels, skip, to + (kCount - 1) * kTileBytes);
}

/// A tile's values in shared memory, tensor after tensor.
struct TileValues {
  const char* from;

  /// This thread's values at its step k of one input.
  __device__ __forceinline__ Values at(int input, int k) const {
    const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
    return Values::read(from + input * kTileBytes + (group * kSteps + k) * kRowBytes +
                        lane * kVector * Storage::bytes);
  }
};

/// A tile: one chunk of one chain, and what can be known of it before its values are there.
struct Tile {
  Chain chain;
  Walk walk;
  bool last;        // of its row
  bool beyond;      // the row has no step here
  Tagged entering;  // threads below kTileChannels: what is known of the state that enters

  __device__ __forceinline__ Tile(const ScanArguments& args, unsigned which)
      : chain{{args, (int)(which % (unsigned)args.chains)}, (int)(which / (unsigned)args.chains)},
        walk(FindWalk(args, chain.number, chain.chunk * kChunk, threadIdx.x / kLanes)) {
    beyond = chain.chunk > 0 && walk.chunk_begin >= walk.length;
    last = walk.length - walk.chunk_begin <= kChunk;
    // Most often this already finds a state, and the block need not look again.
    entering = {0.0f, 0};
    if (!beyond && threadIdx.x < kTileChannels) entering = chain.look(threadIdx.x);
  }
};

/// Has a barrier, whatever the tile. `turn` alternates from tile to tile, as threads that are ahead already write the
/// next one's stretches. Calls between() if the block has to look back.
template <class Op, class Between>
PENSTOCK_DEVICE void RunTile(const ScanArguments& args, ScanShared& shared, int turn, const Tile& tile, Op& op,
                             const Between& between) {
  const Walk& walk = tile.walk;
  if (tile.beyond) {
    Op::clear_padding(walk, args);
    __syncthreads();
    return;
  }
  Stretches& stretches = shared.stretches[turn];
  const int group = threadIdx.x / kLanes;
  stretches.tell(op, walk, group);
  PassOn(shared, stretches, tile.chain, tile.entering, tile.last, between);

  float state[kVector];
  stretches.enter(walk, group, state);
  op.start(args, tile.chain, walk);
  WalkSteps(op, walk, state);
  if (!tile.last) return;
  StoreLast(tile.chain, walk, group, state);
  Op::clear_padding(walk, args);
  // Every block of this launch has read the epoch before its chains could come this far.
  if (threadIdx.x == 0 && atomicAdd(&args.header->finished, 1u) + 1 == (unsigned)args.chains) {
    args.header->finished = 0;
    args.header->epoch += 1;
  }
}

/// Takes the next tile: those of earlier chunks go first, so that a block only ever waits for tiles that were taken
/// before its own, by blocks that run. Thread 0 calls this, and not again once it got one beyond the end.
PENSTOCK_DEVICE unsigned TakeTile(const ScanArguments& args) {
  const unsigned taken = atomicAdd(&args.header->tickets, 1u);
  // Each block asks once in vain; this was the last of all.
  if (taken == args.tiles - 1) args.header->tickets = 0;
  return gridDim.x + taken;
}

template <class Op>
PENSTOCK_DEVICE void CopyTile(const ScanArguments& args, char* ring, int stage, unsigned tile) {
  if (tile < args.tiles) {
    const Walk walk = FindWalk(args, tile % (unsigned)args.chains, (int)(tile / (unsigned)args.chains) * kChunk,
                               threadIdx.x / kLanes);
    CopyInputs<Op, Op::kInputs>(walk, args, ring + stage * Op::kInputs * kTileBytes);
  }
  CommitCopies();
}

/// The whole kernel. A block holds the values of one tile in registers while those of the next are on their way to shared
/// memory.
template <class Op>
PENSTOCK_DEVICE void RunScan(const ScanArguments& args) {
  extern __shared__ __align__(16) char memory[];
  constexpr int kRing = kDepth * Op::kInputs * kTileBytes;
  static_assert(kRing + sizeof(ScanShared) <= kSharedBytes, "the plan knows how much shared memory there is");
  ScanShared& shared = *(ScanShared*)(memory + kRing);
  CopyTile<Op>(args, memory, 0, blockIdx.x);
  unsigned next = 0;  // thread 0: the tile taken last
  if (threadIdx.x == 0) {
    shared.epoch = args.header->epoch;
    shared.ticket[0] = next = blockIdx.x;
    for (int i = 1; i <= kDepth; ++i) {
      if (next < args.tiles) next = TakeTile(args);
      shared.ticket[i] = next;
    }
    if (next < args.tiles) next = TakeTile(args);
  }
  __syncthreads();
  for (int i = 1; i < kDepth; ++i) CopyTile<Op>(args, memory, i, shared.ticket[i]);

  int turn = 0;
  for (int stage = 0, place = 0;; stage = (stage + 1) % kDepth, place = (place + 1) % kTickets, turn ^= 1) {
    const unsigned which = shared.ticket[place];
    if (which >= args.tiles) return;
    const Tile tile(args, which);
    WaitForCopies<kDepth - 1>();
    __syncthreads();
    Op op;
    op.load(TileValues{memory + stage * Op::kInputs * kTileBytes});
    // The next tile's values are asked for as soon as this one's are out of their way; but not before this block's first
    // look back, which would come to stand behind them in the queue for memory.
    const bool owner = threadIdx.x < kTileChannels && !tile.beyond;
    const bool ready = __syncthreads_and(!owner || tile.chain.knows(tile.entering, 2 * shared.epoch));
    const unsigned ahead = shared.ticket[(place + kDepth) % kTickets];
    const auto copy_ahead = [&] { CopyTile<Op>(args, memory, stage, ahead); };
    if (ready) copy_ahead();
    if (threadIdx.x == 0) {
      // The place of the tile before is free: RunTile has a barrier.
      shared.ticket[(place + kDepth + 1) % kTickets] = next;
      if (next < args.tiles) next = TakeTile(args);
    }
    RunTile<Op>(args, shared, turn, tile, op, copy_ahead);
  }
}
