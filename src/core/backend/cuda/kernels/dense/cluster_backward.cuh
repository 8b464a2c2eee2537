// Backward pass of dense cells with R spread over a cluster of thread blocks as in the forward pass. The gradient of
// h_{t-1} is R^T times the gradients of all gates of step t. Each CTA multiplies those of its own units by its own rows
// of R, which gives a term for every unit of the head, and sends each CTA the terms of that one's units, in floats:
// half the bytes that it would take to give all gradients of four gates to everybody, in bfloat16, and no rounding.
// The CTA that owns a unit adds up its terms in the order of the CTAs, and applies the cell.
//
// Terms of step t arrive in one of two buffers in turns: a CTA that has those of step t from everybody knows that
// everybody has added up those of step t + 1.

constexpr bool kBackward = true;
#include "backend/cuda/kernels/dense/cluster.cuh"
#include "backend/cuda/kernels/dense/cluster_backward_slot.cuh"

constexpr int kSlots = kShape.back_slots(), kWarps = kShape.warps(), kTilesM = kShape.back_tiles_m();
#ifdef PENSTOCK_MEANS
#include "backend/cuda/kernels/dense/cluster_means.cuh"

#include "backend/cuda/kernels/dense/cluster_backward_means.cuh"
#endif
constexpr int kBlockFloats = kShape.block_floats();
/// Terms come of products: a measurement without these waits for none.
constexpr bool kSends = kExchanges && kMultiplies;
constexpr int kBarriers = 2;  // before those of means
static_assert(kCluster * kBlocks % 2 == 0 && (kBarriers + MeanExchanges::of.count) * 8 <= ClusterShape::start);
static_assert(kShape.back_shared_bytes() == kSharedBytes, "the plan counts as the kernel does");
using BackwardMatrix = Matrix<kTilesM, kShape.back_tiles_k(), kResident>;

extern "C" __global__ void __launch_bounds__(kShape.threads(), 1)
    DenseClusterBackward(const __grid_constant__ DenseBackwardArguments args) {
  extern __shared__ __align__(128) char shared[];
  const int lane = Held(threadIdx.x % 32), warp = Held(threadIdx.x / 32);
  const int rank = (int)ClusterRank(), cluster = blockIdx.x / kCluster;
  const int head = cluster % args.heads, slice = cluster / args.heads;
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);

  // A barrier for each buffer of terms, of four rows at once.
  CopyBarrier* const barriers = (CopyBarrier*)shared;
  constexpr int term_bytes = kCluster * kBlocks * 8 * ((kRows + 3) / 4) * 16;
  if (threadIdx.x < 2) {
    barriers[threadIdx.x].init(1);
    barriers[threadIdx.x].expect(term_bytes);
#ifdef PENSTOCK_MEANS
    if (threadIdx.x == 0) ClusterMeans::init(barriers + kBarriers);
#endif
    ShowBarriers();
  }

  BackwardMatrix matrix;
  {
    const char* const of_head = args.recurrent + (Index)head * kGates * kHead * kHead * kBytes;
    PrefetchRows(of_head, rank * kBlocks * 8, kBlocks * 8);
    constexpr int warp_bytes = (kShape.back_tiles_k() - kResident) * kTilesM * ClusterShape::tile_bytes;
    char* const others = shared + kShape.back_matrix_at() + warp * warp_bytes;
    // The first value of a word is the gradient of a gate of one of this CTA's units. -1: there is none.
    const auto own_block = [&](int k, int second) {
      const int own = (2 * k + second) / kPieces;
      return own < kGates * kBlocks ? own : -1;
    };
    const auto unit_of = [&](int own, int second, int k, int t) {
      return (rank * kBlocks + own % kBlocks) * 8 + (2 * k + second) % kPieces * kPieceValues + t * (4 / kBytes);
    };
    // Rows are units of the whole head.
    const auto block_of = [&](int m, int half) { return 2 * (warp * kTilesM + m) + half; };
    const auto gate_of = [&](int own) { return of_head + (Index)(own / kBlocks) * kHead * kHead * kBytes; };
    // Gradients and terms come here only later. With few floats, steps were measured to be shorter if they are loaded
    // word by word.
    constexpr bool through_shared = !BackwardMatrix::few_floats;
    constexpr int at_once = through_shared ? TilesAtOnce(kShape.back_matrix_at() - ClusterShape::start, kWarps) : 0;
    if constexpr (at_once > 0) {
      char* const stage = shared + ClusterShape::start + warp * (at_once * ClusterShape::tile_bytes);
      matrix.load_transposed<at_once>(others, stage, [&](int m, int half, int k, int second, int t, int i, int& left) {
        const int own = own_block(k, second), block = block_of(m, half);
        const int unit = unit_of(own, second, k, t) + i;
        left = kHead - block * 8;
        const bool exists = own >= 0 && block * 8 < kHead && unit < kHead;
        return exists ? gate_of(own) + ((Index)unit * kHead + block * 8) * kBytes : nullptr;
      });
    } else {
      matrix.load(others, [&](int m, int half, int k, int second) {
        const int own = own_block(k, second), unit = unit_of(own, second, k, lane % 4);
        return own < 0 ? 0u : TransposedWord(gate_of(own), unit, block_of(m, half) * 8 + lane / 4);
      });
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 2 * kShape.gate_bytes() / 4; i += kShape.threads()) {
    ((unsigned*)(shared + ClusterShape::start))[i] = 0;
  }

  const int steps = LongestRow(args.rows, slice);
  Slot slots[kSlots];
#ifdef PENSTOCK_MEANS
  // A thread has blocks of units of few rows, as in the forward pass.
  const auto index_of = [&](int s) { return (warp * 4 + lane / 8) * kSlots + s; };
  const auto row_of = [&](int index) { return min(index / kBlocks, kRows - 1); };
  const auto place_of = [&](int s) {
    const int index = index_of(s);
    return Place::of(args.rows, slice, row_of(index), rank * kBlocks + index % kBlocks, index < kBlocks * kRows);
  };
  const auto works = [&](int s) { return warp * 4 * kSlots + s < kBlocks * kRows; };
  const auto inside = [&](int s) { return index_of(s) < kBlocks * kRows; };
#else
  const auto place_of = [&](int s) {
    const int index = (warp + kWarps * s) * 4 + lane / 8, block = index / kRows;
    return Place::of(args.rows, slice, index % kRows, rank * kBlocks + block, block < kBlocks);
  };
  const auto works = [&](int s) { return (warp + kWarps * s) * 4 < kBlocks * kRows; };
  const auto inside = [&](int s) { return (warp + kWarps * s) * 4 + lane / 8 < kBlocks * kRows; };
#endif
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    slots[s].place = place_of(s);
    slots[s].init(args, head, steps - 1);
  }
  int ring[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
#ifdef PENSTOCK_MEANS
    const int index = inside(s) ? index_of(s) : 0;
#else
    const int index = inside(s) ? (warp + kWarps * s) * 4 + lane / 8 : 0;
#endif
    ring[s] = Held(kShape.back_ring_at() + index * kStages * Inputs::pieces * 16);
  }
  const auto ring_of = [&](int s, int step) { return shared + ring[s] + (step & (kStages - 1)) * Inputs::pieces * 16; };
  const auto fetch = [&](int step) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (inside(s)) slots[s].fetch(ring_of(s, step), lane % 8, step, args, head);
    }
    CommitCopies();
  };
  for (int step = steps - 1; step > steps - kStages; --step) fetch(step);

  // Where terms go: half a tile is a block, which one CTA has. Even lanes send the upper half, four rows at once.
  int there[kTilesM], barrier_there[kTilesM];
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    const int block = 2 * (warp * kTilesM + m) + lane % 2, place = (rank * kBlocks + block % kBlocks) * kBlockFloats;
    const int at = kShape.received_at() + (place + kShape.place(lane / 4, lane % 4 / 2 * 4)) * 4;
    barrier_there[m] = Held(InBlock(base, min(block / kBlocks, kCluster - 1)));
    there[m] = Held(barrier_there[m] + at);
  }
  const auto send = [&](int m, int n, const float(&sum)[4], int parity) {
    const uint4 rows = FourRows(sum, lane);
    const bool exists = 2 * (warp * kTilesM + m) + lane % 2 < kCluster * kBlocks && 8 * n + lane % 4 / 2 * 4 < kRows;
    if (kExchanges && exists) {
      StoreRemote(there[m] + parity * kShape.received_bytes() + n * 32, rows, barrier_there[m] + parity * 8);
    }
  };
  // Addresses of the terms received through R, for one unit and row each.
  int received_at[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int block = inside(s) ? slots[s].place.block - rank * kBlocks : 0;
    received_at[s] =
        Held(kShape.received_at() + (block * kBlockFloats + kShape.place(lane % 8, slots[s].place.slot)) * 4);
  }
  const auto received = [&](int s, int parity) {
    const float* const p = (const float*)(shared + received_at[s] + parity * kShape.received_bytes());
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kCluster; ++i) sum[i % 4] += p[i * kBlocks * kBlockFloats];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  };
  // Where this lane keeps gradients of its gates.
  int gates_at[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int piece = (inside(s) ? slots[s].place.block - rank * kBlocks : 0) * kPieces + lane % 8 / kPieceValues;
    gates_at[s] = Held(ClusterShape::start + (piece * kRows + slots[s].place.slot) * 16 + lane % kPieceValues * kBytes);
  }
  const Pieces gate_pieces = Pieces::from(base + ClusterShape::start, lane);
  const BackwardStrides strides = BackwardStrides::of(args);
#ifdef PENSTOCK_MEANS
  ClusterMeans means = {slots, shared, base, kBarriers * 8, kShape.back_means_at(), rank};
  means.find_parts(warp, [&](int s) { return Indexed{inside(s), row_of(index_of(s)), slots[s].place.block}; });
#endif
  ClusterArrive();
  ClusterWait();
  constexpr int gate_pitch = kBlocks * kPieces * kRows * 16;
  char* const out = shared + Held(kShape.back_out_at() + (warp * 4 + lane / 8) * kShape.out_pieces() * 16);
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int step = steps - 1 - i, parity = i & 1;
    // While the terms are on their way: the gates again.
    fetch(step - (kStages - 1));
    WaitForCopies<kStages - 1>();
    __syncwarp();
#ifdef PENSTOCK_MEANS
    Real dwx[kSlots][kGates], drh[kSlots][kGates];
    if (works(0)) {
      means.round = i;
      const auto wait_for_terms = [&] {
        if (kSends && i > 0) barriers[1 - parity].wait((i - 1) / 2 & 1);
      };
      GradientsWithMeans<Rule>(
          slots, means, [&](int s) { return ring_of(s, step); }, step, lane, head, args, wait_for_terms,
          [&](int s) { return i > 0 ? received(s, 1 - parity) : 0.0f; }, dwx, drh);
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#pragma unroll
      for (int g = 0; g < kGates && inside(s); ++g) {
        KeepOne(shared + gates_at[s] + parity * kShape.gate_bytes() + g * gate_pitch, drh[s][g].value);
      }
    }
#else
    CellBackward cells[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (works(s)) cells[s] = slots[s].redo(ring_of(s, step), step, lane, head, args);
    }
    LookAhead(slots, args.rows, step, head);
    if (kSends && i > 0) barriers[1 - parity].wait((i - 1) / 2 & 1);
    Real dwx[kSlots][kGates];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      Real drh[kGates];
      slots[s].differentiate(cells[s], i > 0 ? received(s, 1 - parity) : 0.0f, step, args, dwx[s], drh);
      if (!inside(s)) continue;
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        KeepOne(shared + gates_at[s] + parity * kShape.gate_bytes() + g * gate_pitch, drh[g].value);
      }
    }
#endif
    __syncthreads();
    if (kMultiplies) {
      Sums<kTilesM> own;
      own.multiply(matrix, gate_pieces, parity * kShape.gate_bytes());
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) send(m, n, own.sum[0][m][n], parity);
      }
    }
    // Nobody waits for what follows.
    if (kSends && i > 0 && threadIdx.x == 0) barriers[1 - parity].expect(term_bytes);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      const int first = gates_at[s] + parity * kShape.gate_bytes() -
                        (lane % 8 / kPieceValues * kRows * 16 + lane % kPieceValues * kBytes);
      const auto own_gate = [&](int g, int piece) { return shared + first + g * gate_pitch + piece * kRows * 16; };
      slots[s].store(dwx[s], step, out, lane, head, own_gate, args, strides);
    }
  }
  // The others' last terms.
  if (kSends && steps > 0) barriers[(steps - 1) & 1].wait((steps - 1) / 2 & 1);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    // Places are found anew: they are not kept all the while.
    slots[s].finish(place_of(s), head, args, [&] { return steps > 0 ? received(s, (steps - 1) & 1) : 0.0f; });
  }
}
