// Backward pass of dense cells with R spread over many clusters of thread blocks, as in the forward pass. A step reads
// the CTA's part of the gates' gradients of the step after it from the second-level cache, multiplies them by
// R^T, sends sums to the CTAs of the cluster whose units they are of, applies the cell's backward pass, and sends the
// gradients of the gates of its own units.

constexpr bool kBackward = true;
#include "backend/cuda/kernels/dense/chip.cuh"
#include "backend/cuda/kernels/dense/cluster_backward_slot.cuh"

#ifdef PENSTOCK_MEANS
#include "backend/cuda/kernels/dense/chip_means.cuh"

#include "backend/cuda/kernels/dense/cluster_backward_means.cuh"
#endif

using ChipMatrix = Matrix<kTilesM, kTilesK, kResident>;

/// visit(gate, piece) for this lane's share of its block's pieces.
template <class Visit>
PENSTOCK_DEVICE void ForOwnPieces(int lane, const Visit& visit) {
  for (int i = lane % 8; i < kGates * kPieces; i += 8) visit(i / kPieces, i % kPieces);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    DenseChipBackward(const __grid_constant__ DenseChipBackwardArguments all) {
  extern __shared__ __align__(128) char shared[];
  const DenseBackwardArguments& args = all.call;
  const int lane = Held(threadIdx.x % 32), warp = Held(threadIdx.x / 32);
  const int group = warp / kParts, part = warp % kParts;
  const Team team = Team::here(all.first, args.heads);
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  const SumBarriers barriers = SumBarriers::make(shared);
  const Exchange exchange = Exchange::of(all.exchange, team, all.teams);

  ChipMatrix matrix;
  {
    const char* const of_head = args.recurrent + (Index)team.head * kGates * kHead * kHead * kBytes;
    constexpr int warp_bytes = (kTilesK - kResident) * kTilesM * ClusterShape::tile_bytes;
    constexpr int of_gate = kChip.gathered_blocks() * kPieces;
    char* const others = shared + kChip.chip_matrix_at(true) + warp * warp_bytes;
    struct Where {
      const char* gate;  // null: there is none
      int unit, block;
    };
    // The place of the first value in the word that lanes (., t) hold of a half of tile m.
    const auto where = [&](int m, int half, int k, int second, int t) {
      const int of_group = 2 * m + half, q = group * kHalves + of_group;
      const int number = Operand::piece_of(part, k, second, t), word = Operand::word_of(k, second, t);
      const bool exists = of_group < kHalves && q < kChip.blocks_of_cluster() && number < kGates * of_gate;
      return Where{exists ? of_head + (Index)(number / of_gate) * kHead * kHead * kBytes : nullptr,
                   (team.rank * of_gate + number % of_gate) * kPieceValues + word * (4 / kBytes),
                   team.cluster * kChip.blocks_of_cluster() + q};
    };
    // Operands, sums and gradients come here only later.
    constexpr int front = kChip.chip_matrix_at(true) - ClusterShape::start;
    constexpr int back = kSharedBytes - kChip.chip_sums_at(true);
    constexpr int at_once = TilesAtOnce(front > back ? front : back, kWarps);
    if constexpr (at_once > 0) {
      char* const stage = shared + (front > back ? ClusterShape::start : kChip.chip_sums_at(true)) +
                          warp * (at_once * ClusterShape::tile_bytes);
      matrix.load_transposed<at_once>(others, stage, [&](int m, int half, int k, int second, int t, int i, int& left) {
        const Where p = where(m, half, k, second, t);
        left = kHead - p.block * 8;
        const bool exists = p.gate != nullptr && p.block * 8 < kHead && p.unit + i < kHead;
        return exists ? p.gate + ((Index)(p.unit + i) * kHead + p.block * 8) * kBytes : nullptr;
      });
    } else {
      matrix.load(others, [&](int m, int half, int k, int second) {
        const Where p = where(m, half, k, second, lane % 4);
        return p.gate == nullptr ? 0u : TransposedWord(p.gate, p.unit, p.block * 8 + lane / 4);
      });
    }
    __syncthreads();
  }
  // Zeros behind the last piece.
  for (int i = threadIdx.x; i < kChip.operand_bytes(true) / 4; i += kThreads) {
    ((unsigned*)(shared + ClusterShape::start))[i] = 0;
  }

  const int steps = LongestRow(args.rows, team.slice);
  Slot slots[kSlots];
  int ring[kSlots], sums_at[kSlots], gates_at[kSlots], sent_at[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Slot& slot = slots[s];
    slot.place = PlaceOfSlot(args.rows, team, s);
    slot.init(args, team.head, steps - 1);
#ifdef PENSTOCK_MEANS
    const int index = LaneWorks(s) ? IndexOfSlot(s) : 0;
#else
    const int index = LaneWorks(s) ? (warp + kWarps * s) * 4 + lane / 8 : 0;
#endif
    const int own = LaneWorks(s) ? slot.place.block - team.first_block() : 0;
    ring[s] = Held(kChip.chip_ring_at(true) + index * kStages * Inputs::pieces * 16);
    sums_at[s] = Held((int)base + SumPlace(own, slot.place.slot));
    // The pieces of this lane's block and row: of a gate in shared memory, and in the exchange.
    gates_at[s] = Held(kChip.chip_gates_at(true) + (own * kPieces * kRows + slot.place.slot) * 16);
    sent_at[s] = Held((slot.place.block * kPieces * kRows + slot.place.slot) * 16);
  }
  constexpr int gate_pitch = kBlocks * kPieces * kRows * 16;
  const auto own_gate = [&](int s, int g, int piece) {
    return shared + gates_at[s] + g * gate_pitch + piece * kRows * 16;
  };
  const auto ring_of = [&](int s, int step) { return shared + ring[s] + (step & (kStages - 1)) * Inputs::pieces * 16; };
  const auto fetch = [&](int step) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (LaneWorks(s)) slots[s].fetch(ring_of(s, step), lane % 8, step, args, team.head);
    }
    CommitCopies();
  };
  for (int step = steps - 1; step > steps - kStages; --step) fetch(step);
  OwnSums sender;
  sender.init(base, group, part, team.rank, lane);
  const Operand operand = Operand::of(shared, base, team.rank, part, lane);
  const BackwardStrides strides = BackwardStrides::of(args);
  char* const out = shared + Held(kChip.chip_out_at(true) + (warp * 4 + lane / 8) * kShape.out_pieces() * 16);
  // Multiplies the gradients of exchange `i` by R and sends the sums.
  const auto multiply = [&](int i) {
    Sums<kTilesM> own;
    operand.multiply(own, matrix, exchange, i);
    sender.send(own, i & 1, lane);
  };

#ifdef PENSTOCK_MEANS
  ChipMeans means = {slots, exchange, team.cluster * kCluster + team.rank};
  means.find_parts();
#endif
  SumBarriers::meet();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int step = steps - 1 - i;
    fetch(step - (kStages - 1));
    if (i > 0) multiply(i - 1);
    // While sums are on their way.
    WaitForCopies<kStages - 1>();
    __syncwarp();
#ifdef PENSTOCK_MEANS
    const auto wait_for_sums = [&] {
      if (i > 0) barriers.wait(i - 1);
    };
    Real dwx[kSlots][kGates], drh[kSlots][kGates];
    if (WarpWorks(0)) {
      means.number = i;
      GradientsWithMeans<Rule>(
          slots, means, [&](int s) { return ring_of(s, step); }, step, lane, team.head, args, wait_for_sums,
          [&](int s) { return i > 0 ? Total(sums_at[s], 0, (i - 1) & 1) : 0.0f; }, dwx, drh);
    } else {
      wait_for_sums();  // a CTA that is a cluster of its own meets there
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!WarpWorks(s)) continue;
#pragma unroll
      for (int g = 0; g < kGates && LaneWorks(s); ++g) {
        KeepOne(own_gate(s, g, lane % 8 / kPieceValues) + lane % kPieceValues * kBytes, drh[s][g].value);
      }
      __syncwarp();
      if (!LaneWorks(s)) continue;
      ForOwnPieces(lane, [&](int g, int piece) {
        exchange.send(i, sent_at[s] + g * Exchange::gate_bytes + piece * kRows * 16,
                      *(const uint4*)own_gate(s, g, piece));
      });
    }
#else
    CellBackward cells[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (WarpWorks(s)) cells[s] = slots[s].redo(ring_of(s, step), step, lane, team.head, args);
    }
    LookAhead(slots, args.rows, step, team.head);
    if (i > 0) barriers.wait(i - 1);
    Real dwx[kSlots][kGates];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!WarpWorks(s)) continue;
      Real drh[kGates];
      const float through = i > 0 ? Total(sums_at[s], 0, (i - 1) & 1) : 0.0f;
      slots[s].differentiate(cells[s], through, step, args, dwx[s], drh);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        if (!LaneWorks(s)) continue;
        KeepOne(own_gate(s, g, lane % 8 / kPieceValues) + lane % kPieceValues * kBytes, drh[g].value);
      }
      __syncwarp();
      if (LaneWorks(s)) {
        ForOwnPieces(lane, [&](int g, int piece) {
          exchange.send(i, sent_at[s] + g * Exchange::gate_bytes + piece * kRows * 16,
                        *(const uint4*)own_gate(s, g, piece));
        });
      }
    }
#endif
    // Nobody waits for what follows.
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!WarpWorks(s)) continue;
      if (LaneWorks(s) && i >= 2) {
        ForOwnPieces(lane, [&](int g, int piece) {
          exchange.clear(i, sent_at[s] + g * Exchange::gate_bytes + piece * kRows * 16);
        });
      }
      const auto own = [&](int g, int piece) { return own_gate(s, g, piece); };
      slots[s].store(dwx[s], step, out, lane, team.head, own, args, strides);
    }
#ifdef PENSTOCK_MEANS
    if (WarpWorks(0) && i >= 2) means.clear();
#endif
    ShowCleared(i);
  }
  // Gradients of the states before the first step.
  const bool flows = args.dstate_in != nullptr && steps > 0;
  if (flows) {
    multiply(steps - 1);
    barriers.wait(steps - 1);
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    // Places are found anew: they are not kept all the while.
    slots[s].finish(PlaceOfSlot(args.rows, team, s), team.head, args,
                    [&] { return flows ? Total(sums_at[s], 0, (steps - 1) & 1) : 0.0f; });
  }
  SumBarriers::meet();
}
