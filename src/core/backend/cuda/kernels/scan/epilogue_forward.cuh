// A layer's forward pass in one launch, for large layers on Hopper: the product of x with the weights of all gates,
// whose epilogue is the recurrence. A block takes tile after tile of one chunk of T by kTileChannels channels with all
// their gates. One warp brings stages of x and of the weights (cp.async.bulk.tensor); two warpgroups multiply, 64 steps
// each (wgmma), and leave the gates in shared memory, in the storage that a tape would have; a fourth warpgroup scans
// them while the next tile is multiplied. States go from chunk to chunk through memory, as in look_back.cuh.

#include "backend/cuda/kernels/scan/pass.h"
PENSTOCK_PASS(LayerPass)

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/scan/span.cuh"

#include "backend/cuda/kernels/product/warpgroup.cuh"

#include "backend/cuda/kernels/product/tensor_copies.cuh"
#include "backend/cuda/kernels/scan/chain.cuh"
#include "backend/cuda/kernels/scan/epilogue_arguments.h"

constexpr int kStageInputs = kPass.stage_inputs, kDepth = kPass.depth, kProducts = kPass.products;
constexpr int kSharedBytes = kPass.shared_bytes;
constexpr bool kKeepGates = kPass.keep_gates;
constexpr int kChunk = kGroups * kSteps, kWarp = 32;
constexpr int kConsumers = 2, kRoles = kConsumers + 2;  // warpgroups: the epilogue, those that multiply, the producer
static_assert(kChunk == kConsumers * 64 && kLanes == kWarp && kGroups * 8 == kWarp, "how threads share a tile");

constexpr int kColumns = Rule::gates * kTileChannels;
constexpr int kProductColumns = kColumns / kProducts, kSums = kProductColumns / 2;
constexpr int kStageLine = kStageInputs * Storage::bytes;
using StageMatrix = MatrixOfColumnsOf<kStageLine>;

/// Registers of a thread by its work. Four threads, one of each warpgroup, share 512 registers.
constexpr int kMultiplyRegisters = (kProducts * kSums + 40) / 8 * 8, kCopyRegisters = 40,
              kScanRegisters = 512 - 2 * kMultiplyRegisters - kCopyRegisters;
/// A thread of the epilogue makes the terms of its steps once where its registers hold them; else twice, those of a few
/// steps side by side.
constexpr bool kKeepTerms = 2 * kSteps * kVector + 56 <= kScanRegisters;
constexpr int kSideBySide = kKeepTerms ? kSteps : 4;

#include "backend/cuda/kernels/scan/forward_op.cuh"

/// Rows of gates lie in shared memory as the copy engine reads them: 64 channels by 128 steps, pieces of 16 bytes at
/// place p ^ (row % 8).
constexpr int kGateLine = 128, kGateColumns = kGateLine / Storage::bytes, kGateHalves = kTileChannels / kGateColumns;
constexpr int kGateBytes = kChunk * kGateLine;

struct Stage {
  char weight[kColumns * kStageLine];
  char x[kChunk * kStageLine];
};

struct EpilogueShared {
  Stage stage[kDepth];
  char gates[Rule::gates][kGateHalves][kGateBytes];
  Barrier full[kDepth], empty[kDepth];
  Barrier gates_full, gates_empty;
};
static_assert(sizeof(EpilogueShared) <= kSharedBytes, "the plan knows how much shared memory there is");

/// Returns the line of a step's gates. Groups read their steps at once, `kVector` pieces of each: lines change places
/// so that these reads do not meet in the same banks, unless the copy engine reads them.
PENSTOCK_DEVICE int RowOfGates(int step) { return kKeepGates ? step : step ^ (step / kSteps * kVector & 7); }

/// The tiles of a block, one after the other: all channels of a chunk of every row, then those of later chunks, so that
/// a block only ever waits for tiles of blocks that run or are done.
struct TileSpan {
  const EpilogueArguments& args;
  unsigned tile;

  __device__ __forceinline__ explicit TileSpan(const EpilogueArguments& arguments)
      : args(arguments), tile(blockIdx.x) {}

  __device__ __forceinline__ int number() const { return (int)(tile % (unsigned)args.scan.chains); }
  __device__ __forceinline__ int chunk() const { return (int)(tile / (unsigned)args.scan.chains); }
  __device__ __forceinline__ int first_channel() const { return number() % args.scan.channel_tiles * kTileChannels; }
  /// Returns whether the tile's row has a step in its chunk.
  __device__ __forceinline__ bool has_steps() const {
    return !kLengths || FindRow(args.scan, number()).length > chunk() * kChunk;
  }
  __device__ __forceinline__ bool there() const { return tile < args.scan.tiles; }
  __device__ __forceinline__ void next() { tile += gridDim.x; }
};

/// The position in T that a tile's first line in shared memory holds. Descending recurrences read its lines backwards,
/// and their last chunk begins with the row: copies begin nowhere before it.
PENSTOCK_DEVICE int FirstTime(const Span& row, int chunk) {
  return row.first_row_step + (row.descending ? max(row.length - (chunk + 1) * kChunk, 0) : chunk * kChunk);
}

/// One thread.
PENSTOCK_DEVICE void Produce(const EpilogueArguments& args, EpilogueShared& shared) {
  RingPlace at;
#pragma unroll 1
  for (TileSpan tiles(args); tiles.there(); tiles.next()) {
    if (!tiles.has_steps()) continue;
    const Span row = FindRow(args.scan, tiles.number());
    const int time = FirstTime(row, tiles.chunk());
#pragma unroll 1
    for (int n = 0; n < args.input_stages; ++n, at.next(kDepth)) {
      Stage& stage = shared.stage[at.place];
      Barrier& full = shared.full[at.place];
      shared.empty[at.place].wait(at.parity ^ 1);
      ArriveExpecting(full, sizeof(Stage));
      CopyBox(stage.x, args.x, n * kStageInputs, time, row.row, full);
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) {
        CopyBox(stage.weight + g * kTileChannels * kStageLine, args.weight, n * kStageInputs, tiles.first_channel(), g,
                full);
      }
    }
  }
}

/// A warpgroup that multiplies: 64 steps of a tile by all its columns.
struct Multiplier {
  const EpilogueArguments& args;
  EpilogueShared& shared;
  int first_row;  // of the warpgroup in the tile
  RingPlace at;
  float sum[kProducts][kSums];

  __device__ __forceinline__ Multiplier(const EpilogueArguments& arguments, EpilogueShared& of_block, int group)
      : args(arguments), shared(of_block), first_row(group * 64) {}

  /// All sums are in their registers here, which the compiler does not know of multiplications under way.
  __device__ __forceinline__ void settle_sums() {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sum[p][i])::"memory");
    }
  }

  /// The bias, or zeros.
  __device__ __forceinline__ void start_sums(int first_channel) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int j = 0; j < kProductColumns / 8; ++j) {
        const int column = p * kProductColumns + j * 8;
        const int channel = first_channel + column % kTileChannels + threadIdx.x % 4 * 2;
        const bool exists = args.bias != nullptr && channel < args.scan.channels;
        const int unit = column / kTileChannels * args.scan.channels + channel;
        const unsigned pair = exists ? __ldg((const unsigned*)(args.bias + (Index)unit * Storage::bytes)) : 0;
        sum[p][4 * j] = sum[p][4 * j + 2] = Storage::widen(pair & 0xffff);
        sum[p][4 * j + 1] = sum[p][4 * j + 3] = Storage::widen(pair >> 16);
      }
    }
  }

  /// This warp needs a stage no longer.
  __device__ __forceinline__ void release(int place) {
    if (threadIdx.x % kWarp == 0) shared.empty[place].arrive();
  }

  /// Adds the products of all of I. The tensor cores always have a stage before them: one is given back when the next
  /// has been asked for.
  __device__ __forceinline__ void multiply() {
    int before = 0;
    settle_sums();
#pragma unroll 1
    for (int n = 0; n < args.input_stages; ++n) {
      shared.full[at.place].wait(at.parity);
      const Stage& stage = shared.stage[at.place];
      BeginMultiplying();
#pragma unroll
      for (int k = 0; k < kStageInputs / 16; ++k) {
        const unsigned long long x = StageMatrix::describe(stage.x + first_row * kStageLine, k * 32);
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          Multiply(sum[p], x, StageMatrix::describe(stage.weight + p * kProductColumns * kStageLine, k * 32));
        }
      }
      CommitMultiplying();
      WaitForProducts<1>();
      if (n > 0) release(before);
      before = at.place;
      at.next(kDepth);
    }
    WaitForProducts<0>();
    settle_sums();
    release(before);
  }

  /// Gates to shared memory, sixteen columns of sixteen rows of a warp at a time.
  __device__ __forceinline__ void leave_gates() const {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kWarpgroup / kWarp;
    const int row = RowOfGates(first_row + warp * 16 + lane % 16), second = lane / 16;
    const unsigned line = (unsigned)__cvta_generic_to_shared(shared.gates) + row * kGateLine;
    const int turn = (second ^ (row & 7)) << 4;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int j = 0; j < kProductColumns / 8; j += 2) {
        const int column = p * kProductColumns + j * 8, gate = column / kTileChannels;
        const int half = column % kTileChannels / kGateColumns, piece = column % kGateColumns / 8;
        const unsigned to = line + (gate * kGateHalves + half) * kGateBytes + ((piece << 4) ^ turn);
        const float* of = sum[p] + 4 * j;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(Storage::narrow(of[0], of[1])), "r"(Storage::narrow(of[2], of[3])),
                     "r"(Storage::narrow(of[4], of[5])), "r"(Storage::narrow(of[6], of[7]))
                     : "memory");
      }
    }
  }

  __device__ __forceinline__ void run() {
    unsigned parity = 0;
#pragma unroll 1
    for (TileSpan tiles(args); tiles.there(); tiles.next()) {
      if (!tiles.has_steps()) continue;
      start_sums(tiles.first_channel());
      multiply();
      shared.gates_empty.wait(parity ^ 1);
      leave_gates();
      if constexpr (kKeepGates) ShowTensorCores();  // the copy engine, too
      shared.gates_full.arrive();
      parity ^= 1;
    }
  }
};

/// Places of a thread's steps of a tile in shared memory.
struct GatesOfTile {
  const char* gates;  // of the thread's channels, gate 0
  int first, by;      // the line of the first step, and from one to the next
  int piece;

  GatesOfTile() = default;
  __device__ __forceinline__ GatesOfTile(const EpilogueShared& shared, const Span& span, int group) {
    const int step = group * kSteps;
    const int steps = min(span.length - span.chunk_begin, kChunk);  // of the tile
    first = span.descending ? steps - 1 - step : step;
    by = span.descending ? -1 : 1;
    const int in_half = span.tile_channel % kGateColumns * Storage::bytes;
    gates = shared.gates[0][span.tile_channel / kGateColumns] + in_half % 16;
    piece = in_half / 16;
  }

  /// Returns the values of step k; for a step that does not exist, those of some other step.
  __device__ __forceinline__ Values at(int gate, int k) const {
    const int line = RowOfGates((first + by * k) & (kChunk - 1));
    return Values::read(gates + gate * kGateHalves * kGateBytes + line * kGateLine + ((piece ^ (line & 7)) << 4));
  }
};

/// Terms of the next `kSideBySide` steps, made of the gates in shared memory.
struct NextTerms {
  GatesOfTile source;
  ChannelVectors learnt;
  float a[kSideBySide][kVector], b[kSideBySide][kVector];

  __device__ __forceinline__ void load(const GatesOfTile& of_tile, const ChannelVectors& vectors) {
    source = of_tile, learnt = vectors;
  }
  __device__ __forceinline__ void make(int first) {
#pragma unroll
    for (int k = 0; k < kSideBySide; ++k) {
      Values value[Rule::gates][1];
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) value[g][0] = source.at(g, first + k);
      for (int i = 0; i < kVector; ++i) TermsOf(value, 0, i, learnt, a[k][i], b[k][i]);
    }
  }
  __device__ __forceinline__ void get(int k, int i, float& a_k, float& b_k) const {
    a_k = a[k % kSideBySide][i], b_k = b[k % kSideBySide][i];
  }
  __device__ __forceinline__ void forget() {}
};

template <bool kKept>
struct EpilogueTerms {
  using Type = KeptTerms;
};
template <>
struct EpilogueTerms<false> {
  using Type = NextTerms;
};

/// Calls step(k) for the steps of a thread in their order, whose terms the op then has.
template <class Op, class Step>
PENSTOCK_DEVICE void ForSteps(Op& op, const Step& step) {
#pragma unroll 1
  for (int first = 0; first < kSteps; first += kSideBySide) {
    if constexpr (!kKeepTerms) op.terms.make(first);
#pragma unroll
    for (int k = 0; k < kSideBySide; ++k) step(first + k);
  }
}

/// The state that enters a chunk, from the nearest one that is known, and the effects of the chunks after that. A
/// thread of its own for each channel.
PENSTOCK_DEVICE float EnteringState(const Chain& chain, int channel, unsigned epoch_tag) {
  constexpr int kLook = 4;  // words under way
  int back = 1;
  float state = 0.0f;
  for (bool known = false; !known;) {
    Tagged seen[kLook];
#pragma unroll
    for (int n = 0; n < kLook; ++n) {
      const int which = chain.chunk - back - n;
      seen[n] = which < 0 ? Tagged{chain.entry(channel), epoch_tag + 2} : LoadTagged(chain.state_at(which, channel));
    }
    bool onwards = true;
#pragma unroll
    for (int n = 0; n < kLook; ++n) {
      if (!onwards) continue;
      known = seen[n].tag == epoch_tag + 2;
      onwards = seen[n].tag == epoch_tag + 1;
      if (known) state = seen[n].value;
      back += onwards ? 1 : 0;
    }
  }
#pragma unroll 1
  while (--back > 0) {
    const int which = chain.chunk - back;
    const Tagged seen = LoadTagged(chain.state_at(which, channel));
    if (seen.tag == epoch_tag + 2) {  // by now
      state = seen.value;
      continue;
    }
    Tagged gain;
    do {
      gain = LoadTagged(chain.gain_at(which, channel));
    } while (gain.tag != epoch_tag + 1);
    state = Through(gain.value, seen.value, state);
  }
  return state;
}

/// A warp of the epilogue: a quarter of the channels of all steps of a tile. Eight lanes stand side by side over
/// channels, and four of such groups one after the other over time, so that no warp waits for another.
struct Scanner {
  using Op = ForwardOpOver<EpilogueTerms<kKeepTerms>::Type>;
  const EpilogueArguments& args;
  EpilogueShared& shared;
  unsigned epoch_tag;
  int lane, group;  // over channels of the tile, and over time

  __device__ __forceinline__ Scanner(const EpilogueArguments& arguments, EpilogueShared& of_block)
      : args(arguments),
        shared(of_block),
        epoch_tag(2 * arguments.scan.header->epoch),
        lane(threadIdx.x / kWarp * 8 + threadIdx.x % 8),
        group(threadIdx.x % kWarp / 8) {}

  /// The state before this thread's steps, once all is known that comes before. The first groups each speak for one of
  /// the channels that all groups of a lane share.
  __device__ __forceinline__ void enter(Op& op, const Chain& chain, const Span& span, Tagged first, bool last,
                                        float (&state)[kVector]) const {
    float gain[kVector], offset[kVector];
    for (int i = 0; i < kVector; ++i) gain[i] = Gain<Rule>::none(), offset[i] = 0.0f;
    ForSteps(op, [&](int k) { op.compose(span, k, gain, offset); });
    Effect before[kVector], whole;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      Effect all;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (g == group) before[i] = all;
        const int of = g * 8 + (int)threadIdx.x % 8;
        all.append(__shfl_sync(~0u, gain[i], of), __shfl_sync(~0u, offset[i], of));
      }
      if (i == group) whole = all;
    }
    float entering = first.value;
    if (group < kVector) pass_on(chain, span.tile_channel + group, whole, first, last, entering);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float of_channel = __shfl_sync(~0u, entering, i * 8 + (int)threadIdx.x % 8);
      state[i] = Through(before[i].gain, before[i].offset, of_channel);
    }
  }

  /// Publishes what a chunk does to one channel, finds the state that enters there, and publishes the one that leaves.
  __device__ __forceinline__ void pass_on(const Chain& chain, int channel, Effect whole, Tagged first, bool last,
                                          float& entering) const {
    if (!chain.knows(first, epoch_tag)) {
      if (!last) {
        StoreTagged(chain.gain_at(chain.chunk, channel), whole.gain, epoch_tag + 1);
        StoreTagged(chain.state_at(chain.chunk, channel), whole.offset, epoch_tag + 1);
      }
      entering = EnteringState(chain, channel, epoch_tag);
    }
    if (!last) {
      StoreTagged(chain.state_at(chain.chunk, channel), Through(whole.gain, whole.offset, entering), epoch_tag + 2);
    }
  }

  /// Whole tiles of gates, as they lie in shared memory.
  __device__ __forceinline__ void keep_gates(const TileSpan& tiles, const Span& span) const {
    if (threadIdx.x != 0) return;
    for (int g = 0; g < Rule::gates; ++g) {
      for (int half = 0; half < kGateHalves; ++half) {
        StoreBox(args.gates, span.first_channel + half * kGateColumns, g, FirstTime(span, tiles.chunk()), span.row,
                 shared.gates[g][half]);
      }
    }
    CommitStores();
  }

  __device__ __forceinline__ void leave() const {
    if (kKeepGates && threadIdx.x == 0) WaitForReads();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) shared.gates_empty.arrive();
  }

  /// The scan of a tile's gates, once they are there.
  __device__ __forceinline__ void run_tile(const TileSpan& tiles, const Chain& chain, const Span& span, bool last,
                                           unsigned parity) const {
    Tagged first{0.0f, 0};
    if (group < kVector) first = chain.look(span.tile_channel + group);
    shared.gates_full.wait(parity);
    if (kKeepGates) keep_gates(tiles, span);
    Op op;
    op.load(args.scan, span, GatesOfTile(shared, span, group));
    if (kKeepTerms) leave();
    float state[kVector];
    enter(op, chain, span, first, last, state);
    op.start(args.scan, chain, span);
    if (span.valid == kSteps) {
      ForSteps(op, [&](int k) { op.step(span, k, state); });
    } else {
      ForSteps(op, [&](int k) {
        if (k < span.valid) op.step(span, k, state);
      });
    }
    if (!kKeepTerms) leave();
    if (last) finish(chain, span, state);
  }

  __device__ __forceinline__ void finish(const Chain& chain, const Span& span, const float (&state)[kVector]) const {
    StoreLast(chain, span, group, state);
    // Every warp of this launch has read the epoch before its chains could come this far.
    constexpr unsigned warps = kThreads / kWarp;
    if (threadIdx.x % kWarp == 0 && atomicAdd(&args.scan.header->finished, 1u) + 1 == warps * args.scan.chains) {
      args.scan.header->finished = 0;
      args.scan.header->epoch += 1;
    }
  }

  __device__ __forceinline__ void run() const {
    unsigned parity = 0;
#pragma unroll 1
    for (TileSpan tiles(args); tiles.there(); tiles.next()) {
      const Chain chain{{args.scan, tiles.number()}, tiles.chunk()};
      const Span span = FindSpan(args.scan, chain.number, chain.chunk * kChunk, lane, group);
      const bool beyond = chain.chunk > 0 && span.chunk_begin >= span.length;
      const bool last = !beyond && span.length - span.chunk_begin <= kChunk;
      if (tiles.has_steps()) {
        run_tile(tiles, chain, span, last, parity);
        parity ^= 1;
      } else if (last) {  // a row without steps
        float state[kVector];
        for (int i = 0; i < kVector; ++i) state[i] = chain.entry(span.tile_channel + i);
        finish(chain, span, state);
      }
      if (beyond || last) Op::clear_padding(span, args.scan);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kRoles* kWarpgroup, 1)
    EpilogueForward(const __grid_constant__ EpilogueArguments args) {
  extern __shared__ __align__(1024) char memory[];
  EpilogueShared& shared = *(EpilogueShared*)memory;
  if (threadIdx.x == 0) {
    for (int n = 0; n < kDepth; ++n) {
      shared.full[n].init(1), shared.empty[n].init(kConsumers * (kWarpgroup / kWarp));
    }
    shared.gates_full.init(kConsumers * kWarpgroup), shared.gates_empty.init(kThreads / kWarp);
    ShowCopies();
  }
  __syncthreads();
  const int role = threadIdx.x / kWarpgroup;
  if (role == 0) {
    SetRegisters<kScanRegisters, (kScanRegisters > 128)>();
    Scanner(args, shared).run();
  } else if (role <= kConsumers) {
    SetRegisters<kMultiplyRegisters, true>();
    Multiplier(args, shared, role - 1).run();
  } else {
    SetRegisters<kCopyRegisters, false>();
    if (threadIdx.x % kWarpgroup == 0) Produce(args, shared);
  }
}
