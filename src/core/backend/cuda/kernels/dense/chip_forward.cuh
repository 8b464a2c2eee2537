// Forward pass of dense cells with R spread over many clusters of thread blocks, up to the whole chip. R is cut in both
// directions (dense_chip_shape.h). A step reads the CTA's part of h_{t-1} from the second-level cache, multiplies,
// sends sums to the CTAs of the cluster whose units they are of, applies the cell, and sends the CTA's units of h_t.

constexpr bool kBackward = false;
#include "backend/cuda/kernels/dense/chip.cuh"
#include "backend/cuda/kernels/dense/cluster_forward_slot.cuh"

#ifdef PENSTOCK_MEANS
#include "backend/cuda/kernels/dense/chip_means.cuh"

#include "backend/cuda/kernels/dense/cluster_forward_means.cuh"
#endif

using ChipMatrix = Matrix<kTilesM, kTilesK, kResident>;
/// The exchange of h_0. What enters step 0 lies in shared memory, or is the exchange before it.
constexpr int kFirstExchange = kDirect ? 1 : 0;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    DenseChipForward(const __grid_constant__ DenseChipForwardArguments all) {
  extern __shared__ __align__(128) char shared[];
  const DenseForwardArguments& args = all.call;
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
    matrix.load(shared + kChip.chip_matrix_at(false) + warp * warp_bytes, [&](int m, int half, int k, int second) {
      const int of_group = 2 * m + half, q = group * kHalves + of_group;
      const int number = Operand::piece_of(part, k, second, lane), word = Operand::word_of(k, second, lane);
      if (of_group >= kHalves || q >= kChip.blocks_of_cluster() * kGates) return 0u;
      if (number >= kChip.gathered_pieces(false)) return 0u;
      const int block = team.cluster * kChip.blocks_of_cluster() + q / kGates;
      const int column = (team.rank * kChip.gathered_pieces(false) + number) * kPieceValues;
      return MatrixWord(of_head + (Index)(q % kGates) * kHead * kHead * kBytes, block * 8 + lane / 4,
                        column + word * (4 / kBytes));
    });
  }
  // h of step 0 from memory; zeros behind the last piece.
  for (int i = threadIdx.x; !kDirect && i < kChip.operand_bytes(false) / kBytes; i += kThreads) {
    const int slot = i / kPieceValues % kRows, number = i / kPieceValues / kRows;
    const int unit = (team.rank * kChip.gathered_pieces(false) + number) * kPieceValues + i % kPieceValues;
    const Row row = Row::of_slot(args.rows, team.slice * kRows + slot, kDescending);
    float h = 0.0f;
    if (number < kChip.gathered_pieces(false) && row.number >= 0 && unit < kHead) {
      h = FirstOutput(args, row, team.head * kHead + unit);
    }
    KeepOne(shared + ClusterShape::start + i * kBytes, h);
  }

  const int steps = LongestRow(args.rows, team.slice);
  Slot slots[kSlots];
  int ring[kSlots], sums_at[kSlots], sent_at[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Slot& slot = slots[s];
    slot.place = PlaceOfSlot(args.rows, team, s);
    slot.init(args, team.head);
#ifdef PENSTOCK_MEANS
    const int index = LaneWorks(s) ? IndexOfSlot(s) : 0;
#else
    const int index = LaneWorks(s) ? (warp + kWarps * s) * 4 + lane / 8 : 0;
#endif
    ring[s] = Held(kChip.chip_ring_at(false) + index * kStages * kShape.ring_bytes());
    sums_at[s] = Held((int)base + SumPlace(LaneWorks(s) ? slot.place.block - team.first_block() : 0, slot.place.slot));
    // One of the 8 lanes of a block sends each of the block's pieces.
    sent_at[s] = Held(((slot.place.block * kPieces + lane % 8 / (8 / kPieces)) * kRows + slot.place.slot) * 16);
  }
  const auto sends = [&](int s) { return LaneWorks(s) && lane % (8 / kPieces) == 0; };
  const ForwardStrides strides = ForwardStrides::of(args);
  const auto ring_of = [&](int s, int step) { return shared + ring[s] + (step & (kStages - 1)) * kShape.ring_bytes(); };
  const auto fetch = [&](int step) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (LaneWorks(s)) slots[s].fetch(ring_of(s, step), lane, step < slots[s].place.row.length, args, strides.wx);
    }
    CommitCopies();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  // While h is on its way, or, if that would take many registers, sums.
  constexpr bool kReadsFirst = kCluster == 1 && kSlots == 1;
  const auto read_inputs = [&](int step, Real(&wx)[kSlots][kGates]) {
    WaitForCopies<kStages - 1>();
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#ifdef PENSTOCK_MEANS
      slots[s].read_input(ring_of(s, step), lane, wx[s]);
#else
      if (WarpWorks(s)) slots[s].read_input(ring_of(s, step), lane, wx[s]);
#endif
    }
  };
  OwnSums sender;
  sender.init(base, group, part, team.rank, lane);
  const Operand operand = Operand::of(shared, base, team.rank, part, lane);
  char* const kept = shared + Held(kChip.chip_out_at(false) + (warp * 4 + lane / 8) * kShape.ring_bytes());

#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (!kDirect || !WarpWorks(s)) continue;
    const uint4 piece = ShareValues<Storage>(slots[s].state[0], lane);
    if (sends(s)) exchange.send(0, sent_at[s], piece);
  }
#ifdef PENSTOCK_MEANS
  ChipMeans means = {slots, exchange, team.cluster * kCluster + team.rank};
  means.find_parts();
#endif
  SumBarriers::meet();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    fetch(step + kStages - 1);
    Real wx[kSlots][kGates];
    if (kReadsFirst) read_inputs(step, wx);
    LookAhead(slots, args.rows, step, team.head);
    Sums<kTilesM> own;
    operand.multiply(own, matrix, exchange, step - 1 + kFirstExchange);
    sender.send(own, step & 1, lane);
    if (!kReadsFirst) read_inputs(step, wx);
    barriers.wait(step);
#ifdef PENSTOCK_MEANS
    CellForward made[kSlots];
    means.number = step + kFirstExchange;
    const auto product = [&](int s, int g) { return Total(sums_at[s], g, step & 1); };
    if (WarpWorks(0)) ApplyWithMeans<Rule>(slots, means, wx, step, lane, team.head, args, product, made);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (sends(s) && step + 1 < steps) exchange.send(step + kFirstExchange, sent_at[s], made[s].sent);
    }
#else
    CellForward made[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!WarpWorks(s)) continue;
      made[s] = slots[s].apply(wx[s], step, lane, [&](int g) { return Total(sums_at[s], g, step & 1); });
      if (sends(s) && step + 1 < steps) exchange.send(step + kFirstExchange, sent_at[s], made[s].sent);
    }
#endif
    // Nobody waits for what follows.
#ifdef PENSTOCK_MEANS
    if (WarpWorks(0)) KeepMeans(slots, means, step, lane, team.head, args);
#endif
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!WarpWorks(s)) continue;
      if (sends(s) && step + kFirstExchange >= 2) exchange.clear(step + kFirstExchange, sent_at[s]);
      slots[s].store(made[s], step, kept, lane, team.head, args, strides);
    }
#ifdef PENSTOCK_MEANS
    if (WarpWorks(0) && step + kFirstExchange >= 2) means.clear();
#endif
    ShowCleared(step);
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    // Places are found anew: they are not kept all the while.
    slots[s].finish(PlaceOfSlot(args.rows, team, s), team.head, args);
  }
  SumBarriers::meet();
}
