// A linear recurrence over [B, T, C], walked once: what all scan kernels share. The text that includes this defines
// an Op, which says what is loaded at a step, what the step does to a state, and what is stored.
//
// Constants of the plan: Storage, kVector (channels of a thread), kLanes (threads over channels), kGroups (threads over
// time), kSteps (steps of a thread), kDepth (tiles on their way to shared memory), kPiece (bytes of one copy),
// kWindow, kBlocks (blocks of a multiprocessor), kSharedBytes, kLengths, kReset.

constexpr int kThreads = kLanes * kGroups;
constexpr int kTileChannels = kLanes * kVector;
constexpr int kChunk = kGroups * kSteps;
static_assert(kTileChannels <= kThreads, "each channel of a tile has a thread that looks back");
static_assert(kSteps <= 32, "resets are the bits of a word");

#include "backend/cuda/kernels/scan_arguments.h"

#include "backend/cuda/kernels/look_back.cuh"

using Values = Vector<Storage, kVector>;

/// The steps of one thread. Walk steps count from where the recurrence starts: the last one if it descends.
struct Walk {
  int row, first_row_step;    // the row, and where in its tensors it starts (packed rows)
  int length, padded;         // steps that exist, and that have memory
  int chunk_begin;            // first walk step of the chunk
  int begin;                  // and of this thread
  int first_channel;          // of the tile
  int channel, tile_channel;  // of C and of the tile: the first one of this thread
  bool active;                // the channel exists
  int valid;                  // steps of this thread that exist
  unsigned resets;            // bit k: the state is cleared before step k
  bool descending;

  /// Index in T of a walk step; steps beyond the length are padding and count upwards.
  __device__ int time(int step) const { return descending && step < length ? length - 1 - step : step; }

  __device__ char* start(const ScanTensor& tensor, int from_channel, int step) const {
    return tensor.data + row * tensor.row_stride + (first_row_step + time(step)) * tensor.step_stride +
           (Index)from_channel * Storage::bytes;
  }
  __device__ char* at(const ScanTensor& tensor, int step) const { return start(tensor, channel, step); }
  /// From one walk step to the next, where both exist. The compiler may not know that it is the same for every tile:
  /// it would keep all multiples of it in registers.
  __device__ Index stride(const ScanTensor& tensor) const {
    Index stride = descending ? -tensor.step_stride : tensor.step_stride;
    asm volatile("" : "+l"(stride));
    return stride;
  }
};

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

/// The same of inputs 0 to kCount - 1. Not a loop, for which the compiler keeps more addresses at once than registers
/// can hold.
template <int kCount>
PENSTOCK_DEVICE void CopyInputs(const Walk& walk, const ScanArguments& args, char* to) {
  if constexpr (kCount > 1) CopyInputs<kCount - 1>(walk, args, to);
  CopySteps(walk, args.in[kCount - 1], args.channels, 0, to + (kCount - 1) * kTileBytes);
}

/// This thread's values at its step k of one tensor's part of a tile.
PENSTOCK_DEVICE Values ReadStep(const char* from, int k) {
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  return Values::read(from + (group * kSteps + k) * kRowBytes + lane * kVector * Storage::bytes);
}

/// Writes zeros where a tensor has memory but the row no step.
PENSTOCK_DEVICE void ClearPadding(const Walk& walk, const ScanTensor& tensor) {
  if (!walk.active) return;
  for (int k = walk.valid; k < kSteps && walk.begin + k < walk.padded; ++k) {
    Values::zero().store(walk.at(tensor, walk.begin + k));
  }
}

PENSTOCK_DEVICE Walk FindWalk(const ScanArguments& args, int chunk, int chain) {
  Walk walk;
  walk.row = chain / args.channel_tiles;
  walk.first_row_step = 0;
  walk.length = walk.padded = (int)args.steps;
  walk.descending = args.descending != 0;
  if constexpr (kLengths) {
    if (args.cu_seqlens != nullptr) {
      // Numbers from outside that nobody could check without waiting for the GPU: no row leaves the tensor.
      const Index first = min(max(args.cu_seqlens[walk.row], 0ll), args.steps);
      walk.first_row_step = (int)first;
      walk.length = (int)min(max(args.cu_seqlens[walk.row + 1] - first, 0ll), args.steps - first);
      walk.padded = walk.length;
      walk.row = 0;
    } else {
      walk.length = (int)min(max(args.lengths[walk.row], 0ll), args.steps);
    }
  }
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  walk.tile_channel = lane * kVector;
  walk.first_channel = chain % args.channel_tiles * kTileChannels;
  walk.channel = walk.first_channel + walk.tile_channel;
  walk.active = walk.channel < args.channels;
  walk.chunk_begin = chunk * kChunk;
  walk.begin = walk.chunk_begin + group * kSteps;
  walk.valid = walk.active ? min(max(walk.length - walk.begin, 0), kSteps) : 0;
  walk.resets = 0;
  if constexpr (kReset) {
    for (int k = 0; k < walk.valid; ++k) {
      const Index t = walk.first_row_step + walk.time(walk.begin + k);
      const unsigned char reset = args.reset[walk.row * args.reset_row_stride + t * args.reset_step_stride];
      walk.resets |= (reset != 0 ? 1u : 0u) << k;
    }
  }
  return walk;
}

/// A tile: one chunk of one chain, and what can be known of it before its values are there.
struct Tile {
  Chain chain;
  Walk walk;
  bool last;        // of its row
  bool beyond;      // the row has no step here
  Tagged entering;  // threads below kTileChannels: what is known of the state that enters

  __device__ __forceinline__ Tile(const ScanArguments& args, unsigned which)
      : chain{args, (int)(which % (unsigned)args.chains), (int)(which / (unsigned)args.chains)},
        walk(FindWalk(args, chain.chunk, chain.number)) {
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
  // Steps that do not exist may count here: they come last, and nothing comes after them.
  float gain[kVector], offset[kVector];
  for (int i = 0; i < kVector; ++i) gain[i] = 1.0f, offset[i] = 0.0f;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) op.compose(walk, k, gain, offset);
  const int group = threadIdx.x / kLanes;
  for (int i = 0; i < kVector; ++i) {
    stretches.gain[group][walk.tile_channel + i] = gain[i];
    stretches.offset[group][walk.tile_channel + i] = offset[i];
  }
  PassOn(shared, stretches, tile.chain, tile.entering, tile.last, between);

  float state[kVector];
  for (int i = 0; i < kVector; ++i) {
    const int channel = walk.tile_channel + i;
    state[i] = stretches.carry[channel];
#pragma unroll 4
    for (int before = 0; before < group; ++before) {
      state[i] = Through(stretches.gain[before][channel], stretches.offset[before][channel], state[i]);
    }
  }
  op.start(args, tile.chain, walk);
  if (walk.valid == kSteps) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) op.step(walk, k, state);
  } else {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k < walk.valid) op.step(walk, k, state);
    }
  }
  if (!tile.last) return;
  const bool holds_end = walk.valid > 0 ? walk.begin + walk.valid == walk.length
                                        : walk.length == 0 && group == 0 && walk.active;
  if (args.state_out != nullptr && holds_end) {
    float* out = args.state_out + tile.chain.states() + walk.tile_channel;
    for (int i = 0; i < kVector; ++i) out[i] = state[i];
  }
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
    Op::copy(args, FindWalk(args, tile / (unsigned)args.chains, tile % (unsigned)args.chains),
             ring + stage * Op::kInputs * kTileBytes);
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
    op.load(memory + stage * Op::kInputs * kTileBytes);
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
