// A layer's forward pass in one launch: the gates W x + bias of a chunk of steps, and the recurrence over them, chunk
// after chunk of one row and one tile of channels. The tile's weights stay in shared memory; gates go to memory only
// where the backward pass will want them. For layers whose product is too small to be worth a launch and a way through
// memory of its own.
// Groups of threads share the steps of a chunk.

#include "backend/cuda/kernels/scan/pass.h"
PENSTOCK_PASS(LayerPass)

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/scan/span.cuh"

#include "backend/cuda/kernels/scan/fused_arguments.h"

constexpr int kInput = kPass.input, kPiece = kPass.piece, kBlocks = kPass.blocks, kSharedBytes = kPass.shared_bytes;
constexpr bool kKeepGates = kPass.keep_gates, kKeepTerms = true;
#include "backend/cuda/kernels/scan/forward_op.cuh"

constexpr int kChunk = kGroups * kSteps;
constexpr int kFour = 4;                                       // inputs that a thread reads at once
constexpr int kPadded = (kInput + kFour - 1) / kFour * kFour;  // and all of them, with zeros behind
constexpr int kColumns = Rule::gates * kTileChannels;
// Neighbouring inputs of a column, which threads write at once, should not lie in one bank.
constexpr int kColumnPitch = kColumns + (kColumns % 32 == 0 ? kVector : 0);
constexpr int kRowPitch = (kPadded * Storage::bytes + 15) / 16 * 16;
// Neighbouring groups read at the same place of their rows at once: each begins four banks on.
constexpr int kGroupPitch = kSteps * kRowPitch + 16;

using Floats = Vector<F32, kVector>;
using Four = Vector<Storage, kFour>;

struct FusedShared {
  float weight[kPadded * kColumnPitch];            // [I, G, channels]
  __align__(16) char x[2][kGroups * kGroupPitch];  // [steps, I], of this chunk and of the next one
  __align__(16) Stretches stretches;
  float carry[kTileChannels];  // what this chunk hands to the next one
};
static_assert(sizeof(FusedShared) <= kSharedBytes, "the plan knows how much shared memory there is");

/// Returns the start of a step of a chunk's x.
PENSTOCK_DEVICE int RowStart(int row) { return row / kSteps * kGroupPitch + row % kSteps * kRowPitch; }

/// Starts copies of a chunk's x. Steps that do not exist become zero. A thread keeps to one piece of the steps, where
/// there are threads enough.
PENSTOCK_DEVICE void CopyChunk(const FusedArguments& args, const Span& span, int first, char* to) {
  constexpr int pieces = kInput * Storage::bytes / kPiece;
  constexpr int rows_at_once = kThreads >= pieces ? kThreads / pieces : 1;
  constexpr int busy = kThreads >= pieces ? rows_at_once * pieces : kThreads;
  if (threadIdx.x >= busy) return;
  const Index stride = span.stride(args.x) * rows_at_once;
  for (int piece = threadIdx.x % pieces; piece < pieces; piece += busy) {
    int row = threadIdx.x / pieces;
    const char* from = span.start(args.x, piece * (kPiece / Storage::bytes), first + row);
    for (; row < kChunk; row += rows_at_once) {
      CopyAsync<kPiece>(to + RowStart(row) + piece * kPiece, from, first + row < span.length);
      from += stride;
    }
  }
}

/// Zeros behind the inputs of every step, where copies never write.
PENSTOCK_DEVICE void ClearTails(FusedShared& shared) {
  constexpr int tail = (kPadded - kInput) * Storage::bytes, wide = tail > 0 ? tail : 1;
  for (int n = threadIdx.x; n < kChunk * tail; n += kThreads) {
    const int at = RowStart(n / wide) + kInput * Storage::bytes + n % wide;
    shared.x[0][at] = shared.x[1][at] = 0;
  }
}

/// Column [gate, channel] of the weights, input by input.
PENSTOCK_DEVICE void LoadWeights(const FusedArguments& args, const Span& span, FusedShared& shared) {
#pragma unroll 4
  for (int n = threadIdx.x; n < kColumns * kPadded; n += kThreads) {
    const int column = n / kPadded, input = n % kPadded;
    const int channel = span.first_channel + column % kTileChannels;
    const Index row = (Index)(column / kTileChannels) * args.scan.channels + channel;
    const bool exists = channel < args.scan.channels && input < kInput;
    shared.weight[input * kColumnPitch + column] =
        exists ? Vector<Storage, 1>::read(args.weight + (row * kInput + input) * Storage::bytes).get(0) : 0.0f;
  }
}

/// Gates of this thread's steps and channels, in float.
struct Gates {
  float sum[Rule::gates][kSteps][kVector];

  __device__ __forceinline__ void start(const FusedArguments& args, const Span& span) {
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
      float bias[kVector];
      for (int i = 0; i < kVector; ++i) bias[i] = 0.0f;
      if (args.bias != nullptr && span.active) {
        const Values stored = Values::read(args.bias + ((Index)g * args.scan.channels + span.channel) * Storage::bytes);
        for (int i = 0; i < kVector; ++i) bias[i] = stored.get(i);
      }
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        for (int i = 0; i < kVector; ++i) sum[g][k][i] = bias[i];
      }
    }
  }

  /// Products of all inputs in their order, four at a time.
  __device__ __forceinline__ void multiply(const FusedShared& shared, const char* x, int channel) {
#pragma unroll 1
    for (int input = 0; input < kPadded; input += kFour) {
      Four in[kSteps];
#pragma unroll
      for (int k = 0; k < kSteps; ++k) in[k] = Four::read(x + k * kRowPitch + input * Storage::bytes);
#pragma unroll
      for (int j = 0; j < kFour; ++j) {
#pragma unroll
        for (int g = 0; g < Rule::gates; ++g) {
          const Floats w =
              Floats::read((const char*)&shared.weight[(input + j) * kColumnPitch + g * kTileChannels + channel]);
#pragma unroll
          for (int k = 0; k < kSteps; ++k) {
            for (int i = 0; i < kVector; ++i) sum[g][k][i] = __fmaf_rn(w.get(i), in[k].get(j), sum[g][k][i]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void keep(const ScanArguments& args, const Span& span) const {
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
      char* to = span.at(args.in[g], span.begin);
      const Index stride = span.stride(args.in[g]);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        if (k < span.valid) Values::of(sum[g][k]).store(to);
        to += stride;
      }
    }
  }

  __device__ __forceinline__ void make(KeptTerms& terms, const ScanArguments& args, const Span& span) const {
    ChannelVectors learnt;
    learnt.read(args, span);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      for (int i = 0; i < kVector; ++i) {
        float gate[Rule::gates];
#pragma unroll
        for (int g = 0; g < Rule::gates; ++g) gate[g] = sum[g][k][i];
        Affine<Rule>(gate, learnt.of[i], terms.a[k][i], terms.b[k][i]);
      }
    }
  }
};

/// Does the work of Stretches::enter(), but reads all channels of a thread at once, since there are many groups.
PENSTOCK_DEVICE void Enter(const Stretches& stretches, const Span& span, int group, float (&state)[kVector]) {
  const auto read = [&](const float* row) { return Floats::read((const char*)(row + span.tile_channel)); };
  const Floats carry = read(stretches.carry);
  for (int i = 0; i < kVector; ++i) state[i] = carry.get(i);
#pragma unroll 4
  for (int before = 0; before < group; ++before) {
    const Floats gain = read(stretches.gain[before]), offset = read(stretches.offset[before]);
    for (int i = 0; i < kVector; ++i) state[i] = Through(gain.get(i), offset.get(i), state[i]);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    FusedForward(const __grid_constant__ FusedArguments args) {
  extern __shared__ __align__(16) char memory[];
  FusedShared& shared = *(FusedShared*)memory;
  const Place place{args.scan, (int)blockIdx.x};
  const int group = threadIdx.x / kLanes;
  Span span = FindSpan(args.scan, place.number, 0, group);
  CopyChunk(args, span, 0, shared.x[0]);
  CommitCopies();
  ClearTails(shared);
  LoadWeights(args, span, shared);
  for (int i = threadIdx.x; i < kTileChannels; i += kThreads) shared.carry[i] = place.entry(i);

  int begin = 0, stage = 0;
  do {
    span.move_to(args.scan, begin, group);
    CopyChunk(args, span, begin + kChunk, shared.x[stage ^ 1]);
    CommitCopies();
    WaitForCopies<1>();
    __syncthreads();
    for (int i = threadIdx.x; i < kTileChannels; i += kThreads) shared.stretches.carry[i] = shared.carry[i];
    ForwardOp op;
    Gates gates;
    gates.start(args, span);
    if (span.valid > 0) gates.multiply(shared, shared.x[stage] + group * kGroupPitch, span.tile_channel);
    if constexpr (kKeepGates) gates.keep(args.scan, span);
    gates.make(op.terms, args.scan, span);
    shared.stretches.tell(op, span, group);
    __syncthreads();
    float state[kVector];
    Enter(shared.stretches, span, group, state);
    op.start(args.scan, place, span);
    RunSteps(op, span, state);
    if (group == kGroups - 1) {
      for (int i = 0; i < kVector; ++i) shared.carry[span.tile_channel + i] = state[i];
    }
    StoreLast(place, span, group, state);
    ForwardOp::clear_padding(span, args.scan);
    begin += kChunk, stage ^= 1;
  } while (begin < span.length);
  for (; kLengths && begin < span.padded; begin += kChunk) {
    span.move_to(args.scan, begin, group);
    ForwardOp::clear_padding(span, args.scan);
  }
}
