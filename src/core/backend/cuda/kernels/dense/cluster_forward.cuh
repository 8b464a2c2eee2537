// Forward pass of dense cells with R spread over a cluster of thread blocks. A CTA has some units of a head with all
// their gates: its rows of R stay in registers and shared memory for the whole sequence. A step waits for h_{t-1} in
// the CTA's own shared memory, multiplies, adds up what the parts of a group of warps have, applies the cell, and
// stores its units of h_t into every CTA of the cluster. Two buffers of h take turns: a CTA that has all of h_{t-1}
// knows that everybody has read h_{t-2}, since no unit of h_{t-1} could be sent before.

constexpr bool kBackward = false;
#include "backend/cuda/kernels/dense/cluster.cuh"
#include "backend/cuda/kernels/dense/cluster_forward_slot.cuh"

constexpr int kSlots = kShape.slots(), kOwnBlocks = kShape.own_blocks();
#ifdef PENSTOCK_MEANS
#include "backend/cuda/kernels/dense/cluster_means.cuh"

#include "backend/cuda/kernels/dense/cluster_forward_means.cuh"
#endif

constexpr int kBlockFloats = kShape.block_floats(), kWarpFloats = kShape.own_halves() * kBlockFloats;
static_assert(kCluster % kParts == 0 && kBlocks % kGroups == 0 && kShape.h_pieces() % (2 * kParts) == 0);
constexpr int kBarriers = 2 * kParts + kGroups;  // before those of means
static_assert((kBarriers + MeanExchanges::of.count) * 8 <= ClusterShape::start);
static_assert(kShape.shared_bytes() == kSharedBytes, "the plan counts as the kernel does");
using ForwardMatrix = Matrix<kShape.tiles_m(), kShape.tiles_k(), kResident>;

extern "C" __global__ void __launch_bounds__(kShape.threads(), 1)
    DenseClusterForward(const __grid_constant__ DenseForwardArguments args) {
  extern __shared__ __align__(128) char shared[];
  const int lane = Held(threadIdx.x % 32), warp = Held(threadIdx.x / 32);
  const int group = Held(warp / kParts), part = Held(warp % kParts);
  const int rank = (int)ClusterRank(), cluster = blockIdx.x / kCluster;
  const int head = cluster % args.heads, slice = cluster / args.heads;
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);

  // Barriers of both buffers of h, for each part of the warps; then one a group: its sums have been read. One lane
  // arrives there for its warp, behind a __syncwarp() that orders the reads of the others before it: what racecheck,
  // which does not follow such a barrier, reports between these reads and the writes of the next step cannot happen.
  CopyBarrier* const barriers = (CopyBarrier*)shared;
  CopyBarrier& has_read = barriers[2 * kParts + group];
  constexpr int part_bytes = kShape.h_bytes() / kParts;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kParts; ++i) barriers[i].init(1), barriers[i].expect(part_bytes);
    for (int i = 0; i < kGroups; ++i) barriers[2 * kParts + i].init(kParts);
#ifdef PENSTOCK_MEANS
    ClusterMeans::init(barriers + kBarriers);
#endif
    ShowBarriers();
  }

  const int first_block = rank * kBlocks + group * kOwnBlocks;
  ForwardMatrix matrix;
  {
    const char* const of_head = args.recurrent + (Index)head * kGates * kHead * kHead * kBytes;
    PrefetchRows(of_head, rank * kBlocks * 8, kBlocks * 8);
    constexpr int warp_bytes = (kShape.tiles_k() - kResident) * kShape.tiles_m() * ClusterShape::tile_bytes;
    matrix.load(shared + kShape.matrix_at() + warp * warp_bytes, [&](int m, int half, int k, int second) {
      const int q = 2 * m + half, piece = 2 * k + second;
      if (q >= kShape.own_halves()) return 0u;
      return MatrixWord(of_head + (Index)(q % kGates) * kHead * kHead * kBytes,
                        (first_block + q / kGates) * 8 + lane / 4,
                        ((part * kShape.tiles_k() * 2 + piece) * 4 + lane % 4) * (4 / kBytes));
    });
  }
  // h of step 0, all of it, from memory.
  for (int i = threadIdx.x; i < kShape.h_bytes() / kBytes; i += kShape.threads()) {
    const int slot = i / kPieceValues % kRows, unit = i / kPieceValues / kRows * kPieceValues + i % kPieceValues;
    const Row row = Row::of_slot(args.rows, slice * kRows + slot, kDescending);
    float h = 0.0f;
    if (row.number >= 0 && unit < kHead) h = FirstOutput(args, row, head * kHead + unit);
    KeepOne(shared + ClusterShape::start + i * kBytes, h);
  }

  const int steps = LongestRow(args.rows, slice);
  Slot slots[kSlots];
#ifdef PENSTOCK_MEANS
  // A thread has blocks of units of few rows.
  const auto index_of = [&](int s) { return (part * 4 + lane / 8) * kSlots + s; };
  const auto row_of = [&](int index) { return min(index / kOwnBlocks, kRows - 1); };
  const auto place_of = [&](int s) {
    const int index = index_of(s);
    return Place::of(args.rows, slice, row_of(index), first_block + index % kOwnBlocks, index < kOwnBlocks * kRows);
  };
#else
  const auto place_of = [&](int s) {
    const int index = (part + kParts * s) * 4 + lane / 8, block = index / kRows;
    return Place::of(args.rows, slice, index % kRows, first_block + block, block < kOwnBlocks);
  };
#endif
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    slots[s].place = place_of(s);
    slots[s].init(args, head);
  }
  // A warp whose lanes have no block in a slot has nothing to do there.
#ifdef PENSTOCK_MEANS
  const auto works = [&](int s) { return part * 4 * kSlots + s < kOwnBlocks * kRows; };
  const auto inside = [&](int s) { return index_of(s) < kOwnBlocks * kRows; };
#else
  const auto works = [&](int s) { return (part + kParts * s) * 4 < kOwnBlocks * kRows; };
  const auto inside = [&](int s) { return ((part + kParts * s) * 4 + lane / 8) < kOwnBlocks * kRows; };
#endif
  const ForwardStrides strides = ForwardStrides::of(args);

  // Loads of W x run some steps ahead, each 8 lanes' for themselves.
  int ring[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
#ifdef PENSTOCK_MEANS
    const int index = inside(s) ? group * kOwnBlocks * kRows + index_of(s) : 0;
#else
    const int index = inside(s) ? group * kOwnBlocks * kRows + (part + kParts * s) * 4 + lane / 8 : 0;
#endif
    ring[s] = Held(kShape.ring_at() + index * kStages * kShape.ring_bytes());
  }
  const auto ring_of = [&](int s, int step) { return shared + ring[s] + (step & (kStages - 1)) * kShape.ring_bytes(); };
  const auto fetch = [&](int step) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (inside(s)) slots[s].fetch(ring_of(s, step), lane, step < slots[s].place.row.length, args, strides.wx);
    }
    CommitCopies();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

  // Every piece of h goes to all CTAs; each lane that holds it sends it to some of them.
  constexpr int senders = 8 / kPieces, sends = (kCluster + senders - 1) / senders;
  int there[sends], piece_at[kSlots];
#pragma unroll
  for (int i = 0; i < sends; ++i) there[i] = Held(InBlock(base, min(lane % senders + i * senders, kCluster - 1)));
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int number = slots[s].place.block * kPieces + lane % 8 / senders;
    piece_at[s] = Held(ClusterShape::start + (number * kRows + slots[s].place.slot) * 16);
  }
  const int receiver = Held(rank / (kCluster / kParts) * 8);
  const auto send = [&](int s, const uint4& piece, int parity) {
    const int at = piece_at[s] + parity * kShape.h_bytes(), barrier = receiver + parity * kParts * 8;
#pragma unroll
    for (int i = 0; i < sends; ++i) {
      if (kCluster % senders != 0 && lane % senders + i * senders >= kCluster) continue;
      StoreRemote(there[i] + at, piece, there[i] + barrier);
    }
  };
  // Where this lane writes sums, and reads those of its units.
  const int sums_to = Held(kShape.sums_at() + (warp * kWarpFloats + kShape.place(lane / 4, lane % 4 * 2)) * 4);
  int sums_from[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int block = inside(s) ? slots[s].place.block - first_block : 0;
    sums_from[s] = Held(kShape.sums_at() + (group * kParts * kWarpFloats + block * kGates * kBlockFloats +
                                            kShape.place(lane % 8, slots[s].place.slot)) *
                                               4);
  }
  const int kept_at = Held(kShape.tape_at() + (warp * 4 + lane / 8) * kShape.ring_bytes());
  const Pieces h_pieces = Pieces::from(base + ClusterShape::start + part * part_bytes, lane);

#ifdef PENSTOCK_MEANS
  ClusterMeans means = {slots, shared, base, kBarriers * 8, kShape.means_at(), rank};
  means.find_parts(group * (kMeanWarps / kGroups) + part, [&](int s) {
    return Indexed{inside(s), row_of(index_of(s)), slots[s].place.block};
  });
#endif
  ClusterArrive();
  ClusterWait();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int parity = step & 1;
    // While h is on its way.
    fetch(step + kStages - 1);
    WaitForCopies<kStages - 1>();
    __syncwarp();
    Real wx[kSlots][kGates];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#ifdef PENSTOCK_MEANS
      slots[s].read_input(ring_of(s, step), lane, wx[s]);
#else
      if (works(s)) slots[s].read_input(ring_of(s, step), lane, wx[s]);
#endif
    }
    LookAhead(slots, args.rows, step, head);
    if (step > 0) {
      has_read.wait((step - 1) & 1);
      // h of this step lies in buffer `parity`, whose barrier ends a phase every second step.
      if (kExchanges) barriers[parity * kParts + part].wait((step - 1) / 2 & 1);
    }
    if (kMultiplies) {
      Sums<kShape.tiles_m()> own;
      own.multiply(matrix, h_pieces, parity * kShape.h_bytes());
      own.for_each(lane, [&](int m, int half, int row, float first, float second) {
        const int q = 2 * m + half;
        if (q >= kShape.own_halves()) return;
        *(float2*)(shared + sums_to + (q * kBlockFloats + row - lane % 4 * 2) * 4) = make_float2(first, second);
      });
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(32 * kParts) : "memory");
#ifdef PENSTOCK_MEANS
    CellForward made[kSlots];
    const auto product = [&](int s, int g) {
      const float* const p = (const float*)(shared + sums_from[s]);
      float sum = p[g * kBlockFloats];
#pragma unroll
      for (int i = 1; i < kParts; ++i) sum += p[g * kBlockFloats + i * kWarpFloats];
      return sum;
    };
    means.round = step;
    if (works(0)) ApplyWithMeans<Rule>(slots, means, wx, step, lane, head, args, product, made);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (kExchanges && inside(s) && step + 1 < steps) send(s, made[s].sent, 1 - parity);
    }
#else
    CellForward made[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      const float* const p = (const float*)(shared + sums_from[s]);
      made[s] = slots[s].apply(wx[s], step, lane, [&](int g) {
        float sum = p[g * kBlockFloats];
#pragma unroll
        for (int i = 1; i < kParts; ++i) sum += p[g * kBlockFloats + i * kWarpFloats];
        return sum;
      });
      if (kExchanges && inside(s) && step + 1 < steps) send(s, made[s].sent, 1 - parity);
    }
#endif
    // Nobody waits for what follows.
    __syncwarp();
    if (lane == 0) {
      has_read.arrive();
      if (kExchanges && group == 0 && step > 0) barriers[parity * kParts + part].expect(part_bytes);
    }
#ifdef PENSTOCK_MEANS
    if (works(0)) KeepMeans(slots, means, step, lane, head, args);
#endif
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (works(s)) slots[s].store(made[s], step, shared + kept_at, lane, head, args, strides);
    }
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    slots[s].finish(place_of(s), head, args);  // places are found anew: they are not kept all the while
  }
  ClusterArrive();
  ClusterWait();
}
