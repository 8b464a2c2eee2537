// Backward pass of dense cells over large batches, by warpgroups of Hopper: the transpose of R lies in the registers
// and the shared memory of pairs of blocks (dense_warpgroup_shape.h), and is multiplied by the gates' gradients of many
// rows at once.
//
// In the block's third warpgroup, one warp brings those gradients: it waits until all blocks have sent an item, and
// starts its copy. Another warp sends the block's own gradients. The other two bring the values of the tape that a step
// reads, and write the gradients of W x.
// A block's turn begins when all of a step has been sent: the sums of the two warpgroups of both blocks of the pair go
// to the threads that apply the cell to a unit and a row. No block overwrites sums that others still read: a block that
// sums up a step has the results that all blocks made of the sums of the step before.

constexpr bool kBackward = true;
#include "backend/cuda/kernels/dense/warpgroup_tape.cuh"
#include "backend/cuda/kernels/dense/warpgroup_transpose.cuh"

/// Stores 8 bytes in another block's shared memory; that block's barrier (address there) counts them.
PENSTOCK_DEVICE void StoreRemote(unsigned to, const float2& value, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(barrier)
               : "memory");
}

PENSTOCK_DEVICE void StoreRemote(unsigned to, const float4& value, unsigned barrier) {
  StoreRemote(to,
              make_uint4(__float_as_uint(value.x), __float_as_uint(value.y), __float_as_uint(value.z),
                         __float_as_uint(value.w)),
              barrier);
}

/// Sends the block's gradients of R h.
PENSTOCK_DEVICE void SendGradients(const Shared& shared, const TeamExchange& exchange, const Team& team, int steps) {
  constexpr int chunk_units = WarpgroupShape::chunk_units, chunks_of_gate = kUnitsOfTeam / chunk_units;
  constexpr int of_row = kUnits / 8, rows_at_once = 32 / of_row, pieces = kOwnRows / rows_at_once;
  // Items of a gate to which the block contributes.
  constexpr int items = kUnits / chunk_units > kDepth ? kUnits / chunk_units / kDepth : 1;
  const int lane = threadIdx.x % 32, piece = lane % of_row, unit = team.first_unit() + piece * 8;
  static_assert(kInputStages == 1);
  const float scale = kBytes == 4 ? ScalesOfGradients(shared.start)[0] : 1.0f;
  if (kWide && lane == 0) shared.inputs[0].arrive();
#pragma unroll 1
  for (int number = 0; number < steps; ++number) {
#pragma unroll 1
    for (int portion = 0; portion < kPortions; ++portion) {
      shared.made[portion].wait(number & 1);
      // From here on the next turn may overwrite the gradients sent in the turn before this one.
      if (kWide && lane == 0) shared.inputs[0].arrive();
#pragma unroll 1
      for (int g = 0; g < kGates; ++g) {
        const char* const from = shared.sent(number * kPortions + portion, g) + piece * (kPieces * 16);
        char* const to = exchange.sent(portion, number) + kShape.chunk_at(g * chunks_of_gate + unit / chunk_units);
#pragma unroll
        for (int i = 0; i < pieces; ++i) {
          const int row = i * rows_at_once + lane / of_row;
          uint4 units[kPieces];
#pragma unroll
          for (int p = 0; p < kPieces; ++p) units[p] = *(const uint4*)(from + row * kShape.sent_pitch() + p * 16);
#pragma unroll
          for (int term = 0; term < kTerms; ++term) {
            const uint4 v = FactorsOf(units, term, scale);
            const int place = MatrixOfColumns::place(team.own_row() + row, unit % chunk_units / 8);
            asm volatile(
                "st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + term * kShape.term_bytes() + place),
                "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                : "memory");
          }
        }
      }
      if constexpr (!kShowBeforeCopies) ShowGlobalCopies();
      __syncwarp();
      if (lane < kGates * items) {
        const int chunk = lane / items * chunks_of_gate + team.first_unit() / chunk_units;
        exchange.add(portion, chunk / kDepth + lane % items);
      }
      __syncwarp();
    }
  }
}

/// Returns the size of the largest gradient of floats that enters the block's rows and units from outside.
PENSTOCK_DEVICE unsigned LargestEntering(const Shared& shared, const Team& team, const DenseBackwardArguments& args) {
  constexpr int values = kAccess / kBytes, pieces = kUnits / values;
  unsigned most = 0;
#pragma unroll 1
  for (int slot = 0; slot < kPortions * kOwnRows; ++slot) {
    const Row& row = shared.rows[slot / kOwnRows * kRows + team.own_row() + slot % kOwnRows];
    const int unit = threadIdx.x % kUnits;
    if (row.number >= 0 && IsOfHead(team.first_unit() + unit) && args.dstate_out != nullptr) {
      for (int k = threadIdx.x / kUnits; k < kStates; k += kThreads / kUnits) {
        const Index at = ((Index)k * args.rows.rows + row.number) * args.hidden + team.channel() + unit;
        most = max(most, SizeOf(args.dstate_out[at]));
      }
    }
    // All of a tensor's values of the row.
    const auto visit = [&](const DenseTensor& tensor, int channels_before) {
      if (tensor.data == nullptr) return;
#pragma unroll 8
      for (int i = threadIdx.x; i < row.length * pieces; i += kThreads) {
        const int first = i % pieces * values;
        if (!IsOfHead(team.first_unit() + first)) continue;
        const char* const at = row.at(tensor, i / pieces, kDescending);
        const auto v = Vector<Storage, values>::read(at + (Index)(channels_before + team.channel() + first) * kBytes);
#pragma unroll
        for (int j = 0; j < v.words; ++j) most = max(most, SizeOf(__uint_as_float(v.word[j])));
      }
    };
    visit(args.dy, 0);
    if constexpr (kEveryState) {
      for (int k = 1; k < kStates; ++k) visit(args.dstates, (k - 1) * args.hidden);
    }
  }
  return most;
}
/// Tells the team the largest gradient that enters this block.
PENSTOCK_DEVICE void TellLargest(const Shared& shared, const TeamExchange& exchange, const Team& team,
                                 const DenseBackwardArguments& args) {
  float* const word = ScalesOfGradients(shared.start);
  if (threadIdx.x == 0) word[0] = 0;
  __syncthreads();
  FindLargest(word, LargestEntering(shared, team, args));
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(exchange.entering()), "r"(*(volatile unsigned*)word)
               : "memory");
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(exchange.entering() + 1) : "memory");
}
/// Waits for what all blocks of the team told, and sets the scales of its gradients.
PENSTOCK_DEVICE void ScaleGradients(char* start, const TeamExchange& exchange) {
  if (threadIdx.x < 2) {
    unsigned told = 0;
#pragma unroll 1
    for (int tries = 0; told < (unsigned)kShape.blocks(); ++tries) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(told) : "l"(exchange.entering() + 1) : "memory");
      if (tries == kMostTries) asm volatile("trap;");
    }
    unsigned most;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(most) : "l"(exchange.entering()) : "memory");
    SetScales(ScalesOfGradients(start), most, -8, threadIdx.x);
  }
  __syncthreads();
}

/// Part of a thread of a warpgroup that multiplies: unit 8 warp + lane / 4 of the block, and in a tile of 8 rows the
/// rows 2 (lane % 4) and the one after it. In blocks with 64 rows of the matrix for each warpgroup: units lane / 4 and
/// lane / 4 + 8 of the warp's 16 units. Rows count among the block's own rows of a portion.
struct Multiplier : Product {
  static constexpr int units_of_thread = kWide ? 2 : 1;
  const Shared& shared;
  const Team& team;
  const TeamExchange& exchange;
  const DenseBackwardArguments& args;
  int rank;
  /// Gradients of the states that left the step at hand, without what flows through R.
  float carried[kPortions][kPassed][kStates], bias_ih[units_of_thread][kGates];
  Learnt learnt[units_of_thread], dlearnt[units_of_thread];  // dlearnt: of all rows that the thread has of the unit

  /// Returns the row of the thread's i-th sum.
  __device__ __forceinline__ int row_of(int i) const {
    return kWide ? i / 4 * 8 + lane % 4 * 2 + i % 2 : (part * kTiles + i / 2) * 8 + lane % 4 * 2 + i % 2;
  }
  __device__ __forceinline__ int unit_of(int i) const {
    return kWide ? part * WarpgroupShape::tile_rows + 16 * warp + lane / 4 + i / 2 % 2 * 8 : 8 * warp + lane / 4;
  }
  /// Returns whether one of the block's units is one of the head.
  __device__ __forceinline__ bool exists(int unit) const { return IsOfHead(team.first_unit() + unit); }
  __device__ __forceinline__ const Row& row_at(int portion, int own) const {
    return shared.rows[portion * kRows + team.own_row() + own];
  }
  __device__ __forceinline__ Index state_at(int state, const Row& row, int unit) const {
    return ((Index)state * args.rows.rows + row.number) * args.hidden + team.channel() + unit;
  }

  __device__ __forceinline__ void take_matrix() {
    const Transpose transpose = {args, team};
    hold([&](int k, int i, int) {
      const int half = i % 2, further = column_of(0, kShape.held_place(k / kSteps)) + k % kSteps * 16 + i / 2 * 8;
      const int first = column_of(part, 0);
      if constexpr (kBytes == 2) return transpose.read(Transpose::first_unit(part, warp, half), first, further);
      return transpose.word(part, warp, lane / 4 + half * 8, first + further + lane % 4 * 2,
                            ScalesOfMatrix(shared.start)[0]);
    });
    // Only when all have been asked for.
#pragma unroll
    for (int i = 0; i < 4 * kResident && kBytes == 2; ++i) held[i / 4][0][i % 4] = Transposed(held[i / 4][0][i % 4]);
  }
  __device__ __forceinline__ void init() {
#pragma unroll
    for (int u = 0; u < units_of_thread; ++u) {
      const int channel = team.channel() + unit_of(2 * u);
      const bool has_unit = exists(unit_of(2 * u));
      learnt[u].read(args.learnt, args.hidden, channel, has_unit);
      dlearnt[u].clear();
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const bool has_bias = DenseCell::split && args.bias_ih != nullptr && has_unit;
        bias_ih[u][g] = has_bias ? args.bias_ih[(Index)g * args.hidden + channel] : 0.0f;
      }
    }
#pragma unroll
    for (int portion = 0; portion < kPortions; ++portion) {
#pragma unroll
      for (int i = 0; i < kPassed; ++i) {
        const Row& row = row_at(portion, row_of(i));
#pragma unroll
        for (int k = 0; k < kStates; ++k) {
          const bool flows = args.dstate_out != nullptr && row.number >= 0 && exists(unit_of(i));
          carried[portion][i][k] = flows ? args.dstate_out[state_at(k, row, unit_of(i))] : 0.0f;
        }
      }
    }
  }

  /// This thread's sums of the units of the block of rank 0 or 1 (`upper`) and of the rows of part 0 or 1 (`second`).
  __device__ __forceinline__ void take(float (&values)[kPassed], const float (&sum)[kRows / 2], bool upper,
                                       bool second) const {
#pragma unroll
    for (int i = 0; i < kPassed; ++i) {
      const int at = i / 2 * 4 + i % 2, later = at + kTiles * 4;
      const float low = second ? sum[later] : sum[at], high = second ? sum[later + 2] : sum[at + 2];
      values[i] = upper ? high : low;
    }
  }
  __device__ __forceinline__ int passed_at(int i) const {
    return (i / 4 * kWarpgroup + warp * 32 + lane) * (kPassed == 2 ? 8 : 16);
  }

  /// Sends sums to the same thread of a part of the other block.
  __device__ __forceinline__ void pass(const float (&values)[kPassed], int portion, int source, int to_part) const {
    const unsigned barrier = InBlock(shared.sums[portion * kParts + to_part].address(), 1 - rank);
    const unsigned to = InBlock((unsigned)__cvta_generic_to_shared(shared.passed(portion, source, to_part)), 1 - rank);
    if constexpr (kPassed == 2) {
      StoreRemote(to + passed_at(0), make_float2(values[0], values[1]), barrier);
    } else {
#pragma unroll
      for (int i = 0; i < kPassed; i += 4) {
        StoreRemote(to + passed_at(i), make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]), barrier);
      }
    }
  }
  /// Stores values for the block's other part.
  __device__ __forceinline__ void keep(const float (&values)[kPassed], int portion) const {
    char* const to = shared.passed(portion, 0, 1 - part);
    if constexpr (kPassed == 2) {
      *(float2*)(to + passed_at(0)) = make_float2(values[0], values[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kPassed; i += 4) {
        *(float4*)(to + passed_at(i)) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
      }
    }
    __syncwarp();
    if (lane == 0) shared.sums[portion * kParts + 1 - part].arrive();
  }

  /// Sends what this thread has of the sums of others to them, and adds up what they have of its own.
  __device__ __forceinline__ void add_up(float (&own)[kPassed], const float (&sum)[kRows / 2], int portion,
                                         int number) const {
    CopyBarrier& mine = shared.sums[portion * kParts + part];
    if (warp == 0 && lane == 0) mine.expect(2 * kShape.passed_bytes());
    float values[kPassed];
    take(values, sum, rank == 0, part == 1);
    pass(values, portion, 1, part);
    take(values, sum, rank == 0, part == 0);
    pass(values, portion, 2, 1 - part);
    take(values, sum, rank == 1, part == 0);
    keep(values, portion);
    take(own, sum, rank == 1, part == 1);
    mine.wait(number & 1);
#pragma unroll
    for (int source = 0; source < 3; ++source) {
      const char* const from = shared.passed(portion, source, part);
      if constexpr (kPassed == 2) {
        const float2 v = *(const float2*)(from + passed_at(0));
        own[0] += v.x, own[1] += v.y;
      } else {
#pragma unroll
        for (int i = 0; i < kPassed; i += 4) {
          const float4 v = *(const float4*)(from + passed_at(i));
          own[i] += v.x, own[i + 1] += v.y, own[i + 2] += v.z, own[i + 3] += v.w;
        }
      }
    }
  }

  /// Computes the gradients through R of the step after this one; `number`: its place among the sent ones.
  __device__ __forceinline__ void through(float (&own)[kPassed], int portion, int number) const {
    float sum[kRows / 2];
    multiply(sum, number * kPortions + portion);
    if constexpr (kWide) {
      hand_out(own, sum, exchange, team, portion, number);
      collect(own, exchange, team, portion, number);
    } else {
      add_up(own, sum, portion, number);
    }
  }

  /// Returns the gradient that a step passes on to the h before it.
  __device__ __forceinline__ float passed_on(float kept, float through, bool cut, bool exists) const {
    const float all = kept + (cut ? 0.0f : through);
    return exists ? Clipped(all, args.clip) : all;
  }

  PENSTOCK_DEVICE float ValueAt(const char* input) {
    return kBytes == 4 ? *(const float*)input : Half::widen(*(const unsigned short*)input);
  }

  /// Applies the cell's backward pass to a row.
  __device__ __forceinline__ void apply(float (&kept)[kStates], float through, int number, int portion, int step,
                                        int turn) {
    const int stage = turn % kInputStages, row_number = row_of(number), unit = unit_of(number);
    const Row& row = row_at(portion, row_number);
    const bool live = step < row.length && exists(unit);
    const int resets = kReset ? shared.reset(stage)[row_number] : 0;
    const bool reset = resets & 1;
    const char* const input = shared.input(stage) + row_number * kShape.input_pitch();
    const auto value = [&](int at) { return ValueAt(input + at + unit * kBytes); };
    Real wx[kGates], rh[kGates], prev[kStates], next[kStates], dnext[kStates], dprev[kStates], dwx[kGates], drh[kGates];
    Real save[kSaved], of_learnt[Learnt::places];
    const int own_unit = kWide ? number / 2 % 2 : 0;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const float bias = bias_ih[own_unit][g];
      rh[g] = Real(value(g * kGateBytes));
      wx[g] = Real(DenseCell::split ? value(kShape.input_wx_at() + g * kGateBytes) + bias : 0.0f);
    }
    float h = value(kShape.input_h_at());
    if (!HasOutputBefore(args.rows, step)) {
      const bool entered = args.state_in != nullptr && row.number >= 0 && exists(unit);
      h = entered ? args.state_in[state_at(0, row, unit)] : 0.0f;
    }
    prev[0] = Real(reset ? 0.0f : h);
    dnext[0] = Real(passed_on(kept[0], through, resets & 2, step + 1 < row.length) + value(kShape.input_dy_at()));
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      const float state =
          *(const float*)(input + kShape.input_states_at() + (k - 1) * kStateBytes + unit * sizeof(float));
      prev[k] = Real(reset ? 0.0f : state);
      dnext[k] = Real(kept[k]);
    }
    if constexpr (kEveryState) {
      if (args.dstates.data != nullptr && live) {
        const float* const from = (const float*)row.at(args.dstates, step, kDescending) + team.channel() + unit;
        for (int k = 1; k < kStates; ++k) dnext[k] = Real(kept[k] + from[(Index)(k - 1) * args.hidden]);
      }
    }
    DenseCell::forward<Rule>(wx, rh, prev, learnt[own_unit], next, save);
    DenseCell::backward<Rule>(save, prev, learnt[own_unit], dnext, of_learnt, dwx, drh, dprev);
    if (live) dlearnt[own_unit].add(of_learnt);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (live) kept[k] = reset ? 0.0f : dprev[k].value;
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const int at = row_number * kShape.sent_pitch() + unit * kBytes;
      Put(shared.sent(turn, g) + at, live ? drh[g].value : 0.0f);
      if constexpr (DenseCell::split) Put(shared.sent(turn, kGates + g) + at, dwx[g].value);
    }
  }
  PENSTOCK_DEVICE void Put(char* to, float value) {
    const float values[1] = {value};
    Vector<Storage, 1>::of(values).put(to);
  }

  /// Announces that the results of a step's cells can be sent.
  __device__ __forceinline__ void send(int portion) const {
    __syncwarp();
    if (lane == 0) shared.made[portion].arrive();
  }

  __device__ __forceinline__ void run(int steps) {
    take_matrix();
    init();
    int turn = 0;
#pragma unroll 1
    for (int number = 0; number < steps; ++number) {
#pragma unroll
      for (int portion = 0; portion < kPortions; ++portion, ++turn) {
        float own[kPassed] = {};
        if (number > 0) through(own, portion, number - 1);
        shared.inputs[turn % kInputStages].wait(turn / kInputStages & 1);
#pragma unroll
        for (int i = 0; i < kPassed; ++i) apply(carried[portion][i], own[i], i, portion, steps - 1 - number, turn);
        send(portion);
      }
    }
    finish(steps);
  }

  __device__ __forceinline__ void clear_padding(const DenseTensor& tensor, const Row& row, int unit) const {
    for (int step = row.length; step < row.padded; ++step) {
      char* const at = row.at(tensor, step, kDescending) + (Index)(team.channel() + unit) * kBytes;
      for (int g = 0; g < kGates; ++g) Vector<Storage, 1>::zero().put(at + (Index)g * args.hidden * kBytes);
    }
  }

  /// Adds what the thread has of the gradients of the learnt vectors to the first of its rows; if that does not exist,
  /// none does.
  __device__ __forceinline__ void store_learnt() const {
#pragma unroll
    for (int u = 0; u < units_of_thread; ++u) {
      const int row = row_at(0, row_of(2 * u)).number;
      if (row >= 0 && exists(unit_of(2 * u)))
        dlearnt[u].add_to(args.dlearnt, row, args.hidden, team.channel() + unit_of(2 * u));
    }
  }

  /// Writes zeros beyond the rows' lengths and the gradients of the states that came in; call it after the first step.
  __device__ __forceinline__ void finish(int steps) {
    store_learnt();
#pragma unroll
    for (int portion = 0; portion < kPortions; ++portion) {
      float own[kPassed] = {};
      if (args.dstate_in != nullptr && steps > 0) through(own, portion, steps - 1);
#pragma unroll
      for (int i = 0; i < kPassed; ++i) {
        const Row& row = row_at(portion, row_of(i));
        if (row.number < 0 || !exists(unit_of(i))) continue;
        clear_padding(args.dwx, row, unit_of(i));
        if constexpr (DenseCell::split) clear_padding(args.drh, row, unit_of(i));
        if (args.dstate_in == nullptr) continue;
        float(&kept)[kStates] = carried[portion][i];
        kept[0] = passed_on(kept[0], own[i], ResetsAt(args.rows, row, 0), row.length > 0);
#pragma unroll
        for (int k = 0; k < kStates; ++k) args.dstate_in[state_at(k, row, unit_of(i))] = kept[k];
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    DenseWarpgroupBackward(const __grid_constant__ DenseChipBackwardArguments all) {
  extern __shared__ __align__(1024) char memory[];
  const DenseBackwardArguments& args = all.call;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const Team team = Team::here(all.first, args.heads);
  const Shared shared = Shared::of(memory);
  const TeamExchange exchange = TeamExchange::of(all.exchange, team.number);
  Prepare(shared, args.rows, team);
  const Transpose transpose = {args, team};
  if constexpr (kBytes == 4) {
    TellLargest(shared, exchange, team, args);
    FindScales<true>(memory,
                     [&](int part, int row, int column) { return transpose.value(part, row / 16, row % 16, column); });
  }
  if constexpr (kBytes == 2) {
    transpose.lay<kKept>(memory + kShape.matrix_at(), [](int i) { return kShape.kept_place(i); });
    transpose.lay<kStreamed>(exchange.streamed(team.member, 0), [](int i) { return kShape.streamed_place(i); });
    ShowMatrix();
  } else {
    LayMatrix<true>(memory, exchange, team, [&](int part, int row, int column, int) {
      uint4 v;
      unsigned* const words = (unsigned*)&v;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        words[w] = transpose.word(part, row / 16, row % 16, column + 2 * w, ScalesOfMatrix(memory)[0]);
      }
      return v;
    });
  }
  if constexpr (kBytes == 4) ScaleGradients(memory, exchange);
  // The other block's barriers are there, too.
  ClusterArrive();
  ClusterWait();
  const int longest = LongestRow(shared.rows);

  if (warp >= kParts * 4) {
    SetRegisters<kFewRegisters, false>();
    const int helper = warp - kParts * 4;
    if (helper == 0) {
      Bring(shared.ring, exchange, team.share() * kItems, args.dstate_in != nullptr ? longest : longest - 1);
    } else if (helper == 1) {
      SendGradients(shared, exchange, team, longest);
    } else if (helper - 2 < kLoaders) {
      TapeLoader{shared, team, args, longest, (helper - 2) * 32 + lane}.run();
    } else {
      Stream(shared.matrix, exchange, team.member, (args.dstate_in != nullptr ? longest : longest - 1) * kPortions);
    }
  } else {
    SetRegisters<kManyRegisters, true>();
    Multiplier multiplier{
        {shared.ring, shared.matrix, warp / 4, warp % 4, lane}, shared, team, exchange, args, team.member % 2};
    multiplier.run(longest);
  }
  // Nobody leaves while the other block still writes to its shared memory.
  ClusterArrive();
  ClusterWait();
}
