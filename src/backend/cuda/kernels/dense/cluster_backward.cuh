// Backward pass of dense cells with R spread over a cluster of thread blocks as in the forward pass. The gradient of
// h_{t-1} is R^T times the gradients of all gates of step t. Each CTA multiplies those of its own units by its own rows
// of R, which gives a term for every unit of the head, and sends each CTA the terms of that one's units, in floats:
// half the bytes that it would take to give all gradients of four gates to everybody, in bfloat16, and no rounding.
// Whoever has all terms adds them up in the order of the CTAs, and applies the cell.
//
// Terms of step t arrive in one of two buffers in turns: a CTA that has those of step t from everybody knows that
// everybody has added up those of step t + 1.

#include "backend/cuda/kernels/dense/cluster.cuh"

constexpr int kSlots = kShape.back_slots(), kWarps = kShape.warps(), kTilesM = kShape.back_tiles_m();
constexpr int kBlockFloats = kShape.block_floats();
constexpr int kFloatPieces = ClusterShape::float_pieces;
static_assert(kCluster * kBlocks % 2 == 0);
static_assert(kShape.back_shared_bytes() == kSharedBytes, "the plan counts as the kernel does");
using BackwardMatrix = Matrix<kTilesM, kShape.back_tiles_k(), kResident>;

/// The values that a step reads of each unit, in the order in which a block's pieces of them lie in shared memory.
struct Inputs {
  static constexpr int wx = kGates, states = kGates * (1 + DenseCell::split), dy = states + kStates - 1, h = dy + 1;
  static constexpr int count = h + 1, pieces = kShape.read_pieces(), loads = (pieces + 7) / 8;
  PENSTOCK_DEVICE constexpr bool is_state(int value) { return value >= states && value < dy; }
  PENSTOCK_DEVICE constexpr int pieces_of(int value) { return is_state(value) ? kFloatPieces : kPieces; }
  PENSTOCK_DEVICE constexpr int first_piece(int value) {
    int at = 0;
    for (int v = 0; v < value; ++v) at += pieces_of(v);
    return at;
  }
};
static_assert(Inputs::first_piece(Inputs::count) == kShape.read_pieces());

/// What a thread has of one block and row.
struct Slot {
  Place place;
  float carried[kStates];  // gradients of the states that left the step at hand, without what flows through R
  float bias_ih[kGates];
  const char* from[kWhole ? Inputs::loads : 1];  // of the step to be loaded next
  Index stride[kWhole ? Inputs::loads : 1];
  char* dwx;  // of the step at hand, as `drh`
  char* drh;
  bool reset, reset_after;  // before this step, before the one that follows it

  /// Where a value lies, of the first unit that this lane moves.
  __device__ __forceinline__ const char* address(const DenseBackwardArguments& args, int head, int value,
                                                 int step) const {
    const Row& row = place.row;
    const Index channel = place.channel(head), gate = (Index)args.hidden * kBytes;
    if (value < kGates) return row.at(args.sums, step, kDescending) + value * gate + channel * kBytes;
    if (value < Inputs::states)
      return row.at(args.wx, step, kDescending) + (value - Inputs::wx) * gate + channel * kBytes;
    if (value < Inputs::dy) {
      return row.at(args.states, step, kDescending) + ((Index)(value - Inputs::states) * args.hidden + channel) * 4;
    }
    if (value < Inputs::h)
      return args.dy.data == nullptr ? nullptr : row.at(args.dy, step, kDescending) + channel * kBytes;
    return row.at(args.y, step - 1, kDescending) + channel * kBytes;
  }
  PENSTOCK_DEVICE Index step_stride(const DenseBackwardArguments& args, int value) {
    const DenseTensor& tensor = value < kGates           ? args.sums
                                : value < Inputs::states ? args.wx
                                : value < Inputs::dy     ? args.states
                                : value < Inputs::h      ? args.dy
                                                         : args.y;
    return kDescending ? tensor.step_stride : -tensor.step_stride;
  }

  __device__ __forceinline__ void init(const DenseBackwardArguments& args, int head, int last) {
    const Row& row = place.row;
    const Index channel = (Index)place.channel(head) * kBytes;
    dwx = row.at(args.dwx, row.length - 1, kDescending) + channel;
    drh = nullptr;
    if constexpr (DenseCell::split) drh = row.at(args.drh, row.length - 1, kDescending) + channel;
    reset = ResetsAt(args.rows, row, last);
    reset_after = false;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      carried[i] = ReadState(args.dstate_out, i, place, args.rows.rows, args.hidden, head);
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      bias_ih[g] = 0.0f;
      if (DenseCell::split && args.bias_ih != nullptr && place.exists) {
        bias_ih[g] = args.bias_ih[(Index)g * args.hidden + head * kHead + place.unit];
      }
    }
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < Inputs::loads; ++i) {
        const int piece = i * 8 + threadIdx.x % 8;
        from[i] = nullptr, stride[i] = 0;
        for (int v = 0; v < Inputs::count; ++v) {
          const int first = Inputs::first_piece(v);
          if (piece < first || piece >= first + Inputs::pieces_of(v) || !place.exists) continue;
          // Rows that end before the last step begin where they end.
          const char* const start = address(args, head, v, place.row.length - 1);
          stride[i] = step_stride(args, v);
          if (start != nullptr) from[i] = start + (piece - first) * 16;
        }
      }
    }
  }

  /// Starts to load what step `step` reads; steps come in falling order.
  __device__ __forceinline__ void fetch(char* ring, int lane, int step, const DenseBackwardArguments& args, int head) {
    const bool exists = step >= 0 && step < place.row.length;
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < Inputs::loads; ++i) {
        const int piece = i * 8 + lane;
        if (piece >= Inputs::pieces) continue;
        // No h of before the first step; the state that entered it is not in storage.
        const bool is_h = piece >= Inputs::first_piece(Inputs::h);
        CopyAsync<16>(ring + piece * 16, from[i], exists && from[i] != nullptr && (step > 0 || !is_h));
        if (exists) from[i] += stride[i];
      }
    } else {
      for (int v = 0; v < Inputs::count; ++v) {
        const char* const p = exists && (step > 0 || v != Inputs::h) ? address(args, head, v, step) : nullptr;
        char* const to = ring + Inputs::first_piece(v) * 16;
        if (Inputs::is_state(v)) {
          CopyAsync<4>(to + lane * 4, p, p != nullptr);
        } else {
          CopyAsync<kBytes>(to + lane * kBytes, p, p != nullptr);
        }
      }
    }
  }

  PENSTOCK_DEVICE float read(const char* ring, int lane, int value) {
    const char* const p = ring + Inputs::first_piece(value) * 16;
    return Inputs::is_state(value) ? ((const float*)p)[lane] : LoadOne(p + lane * kBytes);
  }
};

PENSTOCK_DEVICE uint4 Bits(float a, float b, float c, float d) {
  return make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
}

/// Writes values of a block, `stride` bytes apart; source(value, piece): its 16 bytes in shared memory.
template <class Source>
PENSTOCK_DEVICE void StoreBlock(char* to, int lane, int values, Index stride, const Source& source) {
  if constexpr (kWhole) {
    for (int i = lane; i < values * kPieces; i += 8) {
      StorePiece(to + i / kPieces * stride + i % kPieces * 16, *(const uint4*)source(i / kPieces, i % kPieces));
    }
  } else {
    for (int v = 0; v < values; ++v) {
      StoreOne(to + v * stride, LoadOne(source(v, lane / kPieceValues) + lane % kPieceValues * kBytes));
    }
  }
}

extern "C" __global__ void __launch_bounds__(kShape.threads(), 1)
    DenseClusterBackward(const __grid_constant__ DenseBackwardArguments args) {
  extern __shared__ __align__(128) char shared[];
  const int lane = Held(threadIdx.x % 32), warp = Held(threadIdx.x / 32);
  const int rank = (int)ClusterRank(), cluster = blockIdx.x / kCluster;
  const int head = cluster % args.heads, slice = cluster / args.heads;
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  const Index gate_stride = (Index)args.hidden * kBytes;

  // A barrier for each buffer of terms, of four rows at once.
  CopyBarrier* const barriers = (CopyBarrier*)shared;
  constexpr int term_bytes = kCluster * kBlocks * 8 * ((kRows + 3) / 4) * 16;
  if (threadIdx.x < 2) {
    barriers[threadIdx.x].init(1);
    barriers[threadIdx.x].expect(term_bytes);
    ShowBarriers();
  }

  BackwardMatrix matrix;
  {
    const char* const of_head = args.recurrent + (Index)head * kGates * kHead * kHead * kBytes;
    constexpr int warp_bytes = (kShape.back_tiles_k() - kResident) * kTilesM * ClusterShape::tile_bytes;
    matrix.load(shared + kShape.back_matrix_at() + warp * warp_bytes, [&](int m, int half, int piece) {
      // Row: a unit of the whole head. Word: gradients of one or two of this CTA's units.
      const int block = 2 * (warp * kTilesM + m) + half, row = block * 8 + lane / 4, own = piece / kPieces;
      const int unit = (rank * kBlocks + own % kBlocks) * 8 + piece % kPieces * kPieceValues + lane % 4 * (4 / kBytes);
      if (row >= kHead || own >= kGates * kBlocks || unit >= kHead) return 0u;
      const char* const p = of_head + (((Index)(own / kBlocks) * kHead + unit) * kHead + row) * kBytes;
      if constexpr (kBytes == 4) {
        return *(const unsigned*)p;
      } else {
        return LoadBits<Storage>(p) | (unit + 1 < kHead ? LoadBits<Storage>(p + kHead * kBytes) << 16 : 0);
      }
    });
  }
  for (int i = threadIdx.x; i < 2 * kShape.gate_bytes() / 4; i += kShape.threads()) {
    ((unsigned*)(shared + ClusterShape::start))[i] = 0;
  }

  const int steps = LongestRow(args.rows, slice);
  Slot slots[kSlots];
  const auto place_of = [&](int s) {
    const int index = (warp + kWarps * s) * 4 + lane / 8, block = index / kRows;
    return Place::of(args.rows, slice, index % kRows, rank * kBlocks + block, block < kBlocks);
  };
  const auto works = [&](int s) { return (warp + kWarps * s) * 4 < kBlocks * kRows; };
  const auto inside = [&](int s) { return (warp + kWarps * s) * 4 + lane / 8 < kBlocks * kRows; };
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    slots[s].place = place_of(s);
    slots[s].init(args, head, steps - 1);
  }
  int ring[kSlots];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int index = inside(s) ? (warp + kWarps * s) * 4 + lane / 8 : 0;
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
    const bool lower = lane % 2 != 0;
    const float first = __shfl_xor_sync(0xffffffffu, lower ? sum[0] : sum[2], 1);
    const float second = __shfl_xor_sync(0xffffffffu, lower ? sum[1] : sum[3], 1);
    const uint4 rows = lower ? Bits(first, second, sum[2], sum[3]) : Bits(sum[0], sum[1], first, second);
    const bool exists = 2 * (warp * kTilesM + m) + lane % 2 < kCluster * kBlocks && 8 * n + lane % 4 / 2 * 4 < kRows;
    if (kExchanges && exists) {
      StoreRemote(there[m] + parity * kShape.received_bytes() + n * 32, rows, barrier_there[m] + parity * 8);
    }
  };
  // What has come through R, for one unit and row.
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
  const Index sign = kDescending ? -1 : 1;
  const Index dwx_stride = sign * args.dwx.step_stride, drh_stride = sign * args.drh.step_stride;
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
    Real save[kSlots][kSaved], prev[kSlots][kStates];
    float dy[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      const Slot& slot = slots[s];
      const char* const from = ring_of(s, step);
      Real wx[kGates], rh[kGates], next[kStates];
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        rh[g] = Real(Slot::read(from, lane % 8, g));
        wx[g] = Real(DenseCell::split
                         ? Slot::read(from, lane % 8, Inputs::wx + (DenseCell::split ? g : 0)) + slot.bias_ih[g]
                         : 0.0f);
      }
      float h = Slot::read(from, lane % 8, Inputs::h);
      if (step == 0) h = ReadState(args.state_in, 0, slot.place, args.rows.rows, args.hidden, head);
      prev[s][0] = Real(slot.reset ? 0.0f : h);
#pragma unroll
      for (int k = 1; k < kStates; ++k)
        prev[s][k] = Real(slot.reset ? 0.0f : Slot::read(from, lane % 8, Inputs::states + k - 1));
      dy[s] = Slot::read(from, lane % 8, Inputs::dy);
      Rule::forward(wx, rh, prev[s], next, save[s]);
    }
    if (kExchanges && i > 0) barriers[1 - parity].wait((i - 1) / 2 & 1);
    float dwxs[kSlots][DenseCell::split ? kGates : 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      Slot& slot = slots[s];
      const bool live = step < slot.place.row.length;
      Real dnext[kStates], dwx[kGates], drh[kGates], dprev[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) dnext[k] = Real(slot.carried[k]);
      if (i > 0) dnext[0] = Real(slot.carried[0] + (slot.reset_after ? 0.0f : received(s, 1 - parity)));
      dnext[0] = dnext[0] + Real(dy[s]);
      if (kApplies) {
        Rule::backward(save[s], prev[s], dnext, dwx, drh, dprev);
      } else {
        for (int g = 0; g < kGates; ++g) dwx[g] = drh[g] = dnext[0] * save[s][0];
        for (int k = 0; k < kStates; ++k) dprev[k] = dnext[k];
      }
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (live) slot.carried[k] = slot.reset ? 0.0f : dprev[k].value;
      }
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        if constexpr (DenseCell::split) dwxs[s][g] = dwx[g].value;
      }
      if (!inside(s)) continue;
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        KeepOne(shared + gates_at[s] + parity * kShape.gate_bytes() + g * gate_pitch, live ? drh[g].value : 0.0f);
      }
    }
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
    if (kExchanges && i > 0 && threadIdx.x == 0) barriers[1 - parity].expect(term_bytes);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!works(s)) continue;
      Slot& slot = slots[s];
      const bool live = step < slot.place.row.length;
      __syncwarp();
      if constexpr (DenseCell::split) {
#pragma unroll
        for (int g = 0; g < kGates; ++g) KeepOne(out + (g * 8 + lane % 8) * kBytes, dwxs[s][g]);
        __syncwarp();
      }
      if (live) {
        const int first = gates_at[s] + parity * kShape.gate_bytes() -
                          (lane % 8 / kPieceValues * kRows * 16 + lane % kPieceValues * kBytes);
        const auto own_gate = [&](int g, int piece) { return shared + first + g * gate_pitch + piece * kRows * 16; };
        const auto kept = [&](int v, int piece) { return out + (v * kPieces + piece) * 16; };
        if constexpr (DenseCell::split) {
          StoreBlock(slot.dwx, lane % 8, kGates, gate_stride, kept);
          StoreBlock(slot.drh, lane % 8, kGates, gate_stride, own_gate);
          slot.drh -= drh_stride;
        } else {
          StoreBlock(slot.dwx, lane % 8, kGates, gate_stride, own_gate);
        }
        slot.dwx -= dwx_stride;
      }
      slot.reset_after = slot.reset;
      if constexpr (kReset) slot.reset = ResetsAt(args.rows, slot.place.row, step - 1);
    }
  }
  // The others' last terms.
  if (kExchanges && steps > 0) barriers[(steps - 1) & 1].wait((steps - 1) / 2 & 1);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    Slot& slot = slots[s];
    const Place p = place_of(s);  // not kept all the while
    ClearPadding(args.dwx, p, head, kGates, gate_stride);
    if constexpr (DenseCell::split) ClearPadding(args.drh, p, head, kGates, gate_stride);
    if (args.dstate_in == nullptr || !p.exists) continue;
    if (steps > 0 && !slot.reset_after) slot.carried[0] += received(s, (steps - 1) & 1);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      args.dstate_in[((Index)i * args.rows.rows + p.row.number) * args.hidden + head * kHead + p.unit] =
          slot.carried[i];
    }
  }
}
