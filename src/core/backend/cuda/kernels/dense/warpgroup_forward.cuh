// Forward pass of dense cells over large batches, by warpgroups of Hopper: R lies in the registers and the shared
// memory of a team of blocks (dense_warpgroup_shape.h), and is multiplied by the h of many rows at once.
//
// In the block's third warpgroup, one warp brings h: it waits until all blocks have sent an item, and starts its copy.
// Another warp sends the block's units of h, counts them as sent, and writes them as y. The other two bring W x, and
// write the tape, whose values the multiplying warps leave in the place of W x.

constexpr bool kBackward = false;
#include "backend/cuda/kernels/dense/warpgroup_team.cuh"

/// A 4 x 4 transposition of halves: of four lanes that differ in bits 3 and 4, lane u has values 0, 1 (first) and 2, 3
/// (second), and gets value u of lanes 0, 1 and 2, 3.
PENSTOCK_DEVICE void TransposeFour(unsigned& first, unsigned& second, int lane) {
  const bool upper = lane & 16, odd = lane & 8;
  const unsigned got = __shfl_xor_sync(0xffffffffu, upper ? first : second, 16);
  const unsigned low = upper ? got : first, high = upper ? second : got;
  const unsigned kept = __byte_perm(low, high, odd ? 0x7632 : 0x5410);
  const unsigned other = __shfl_xor_sync(0xffffffffu, __byte_perm(low, high, odd ? 0x5410 : 0x7632), 8);
  const unsigned of_even = odd ? other : kept, of_odd = odd ? kept : other;
  first = __byte_perm(of_even, of_odd, 0x5410), second = __byte_perm(of_even, of_odd, 0x7632);
}

/// Shared memory.
struct Shared {
  Ring ring;
  MatrixRing matrix;
  char* start;
  CopyBarrier* inputs;  // [input stage]: W x is there
  CopyBarrier* made;    // [portion]: the cells of a step have been applied
  Row* rows;            // [portion][row]

  PENSTOCK_DEVICE Shared of(char* start) {
    auto* const own = (CopyBarrier*)start;
    auto* const first = OtherBarriers(start);
    return {Ring::of(start, own),
            MatrixRing::of(start, own + 2 * Ring::stages),
            start,
            first,
            first + kInputStages,
            (Row*)(start + kShape.rows_at())};
  }
  __device__ __forceinline__ void init() const {
    ring.init(), matrix.init();
    for (int i = 0; i < kInputStages; ++i) inputs[i].init(2 * 32 * kLoaders);
    for (int i = 0; i < kPortions; ++i) made[i].init(kParts * 4 + kLoaders);
  }
  __device__ __forceinline__ char* input(int stage) const {
    return start + kShape.input_at() + stage * kShape.input_bytes();
  }
  __device__ __forceinline__ unsigned char* reset(int stage) const {
    return (unsigned char*)start + kShape.reset_at() + stage * kOwnRows;
  }
  __device__ __forceinline__ char* sent(int portion) const {
    return start + kShape.sent_at() + portion * kShape.sent_bytes();
  }
};

/// Sends the block's units of h, and writes them as y.
PENSTOCK_DEVICE void SendStates(const Shared& shared, const TeamExchange& exchange, const Team& team, int steps,
                                const DenseForwardArguments& args) {
  constexpr int of_row = kUnits / 8, rows_at_once = 32 / of_row, pieces = (kOwnRows + rows_at_once - 1) / rows_at_once;
  constexpr int chunk_units = WarpgroupShape::chunk_units;
  const int lane = threadIdx.x % 32, piece = lane % of_row;
  const int in_chunk = team.first_unit() % chunk_units / 8 + piece;
  const int sent_at = kShape.chunk_at(team.first_unit() / chunk_units);
#pragma unroll 1
  for (int number = 0; number <= steps; ++number) {
#pragma unroll 1
    for (int portion = 0; portion < kPortions; ++portion) {
      shared.made[portion].wait(number & 1);
      const char* const from = shared.sent(portion) + piece * (kPieces * 16);
      char* const to = exchange.sent(portion, number) + sent_at;
      uint4 v[pieces][kPieces];
#pragma unroll
      for (int i = 0; i < pieces; ++i) {
        const int row = i * rows_at_once + lane / of_row;
        if (kOwnRows % rows_at_once != 0 && row >= kOwnRows) continue;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) v[i][p] = *(const uint4*)(from + row * kShape.sent_pitch() + p * 16);
#pragma unroll
        for (int term = 0; term < kTerms; ++term) {
          const uint4 factors = FactorsOf(v[i], term);
          asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                           to + term * kShape.term_bytes() + MatrixOfColumns::place(team.own_row() + row, in_chunk)),
                       "r"(factors.x), "r"(factors.y), "r"(factors.z), "r"(factors.w)
                       : "memory");
        }
      }
      if constexpr (!kShowBeforeCopies) ShowGlobalCopies();
      __syncwarp();
      if (lane == 0) exchange.add(portion, team.first_unit() / chunk_units / kDepth);
      __syncwarp();
      if (number == 0) continue;
#pragma unroll
      for (int i = 0; i < pieces; ++i) {
        const int slot = i * rows_at_once + lane / of_row;
        if (kOwnRows % rows_at_once != 0 && slot >= kOwnRows) continue;
        const Row row = shared.rows[portion * kRows + team.own_row() + slot];
        if (number > row.length) continue;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          const int at = piece * kPieces + p;
          StoreUnits(row.at(args.y, number - 1, kDescending) + team.channel() * kBytes + at * 16, v[i][p],
                     at * kPieceUnits, team.left());
        }
      }
    }
  }
}

/// Brings W x, as `loader` of the warps that do, and writes the gates of the tape.
struct InputLoader {
  /// Unrolling factor; with few gates or narrow accesses the loop takes more registers.
  static constexpr int unrolled = kAccess < 8 ? 1 : kGates > 2 ? 4 : 2;
  static constexpr int of_gate = kUnits / kPieceUnits, pieces = kOwnRows * kGates * of_gate, stride = 32 * kLoaders;
  const Shared& shared;
  const Team& team;
  const DenseForwardArguments& args;
  int steps, first;

  /// Calls visit(own row, gate, piece of the gate's units) for this thread's pieces of 16 bytes.
  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
#pragma unroll(unrolled)
    for (int i = first; i < pieces; i += stride) visit(i / (of_gate * kGates), i / of_gate % kGates, i % of_gate);
  }
  __device__ __forceinline__ int place(int row, int gate, int piece) const {
    return row * kShape.input_pitch() + gate * (kUnits * kBytes) + piece * 16;
  }
  __device__ __forceinline__ Index channel(int gate, int piece) const {
    return ((Index)gate * args.hidden + team.channel()) * kBytes + piece * 16;
  }

  __device__ __forceinline__ void fetch(int turn) const {
    const int stage = turn % kInputStages, step = turn / kPortions;
    const Row* const rows = shared.rows + turn % kPortions * kRows + team.own_row();
    if (step >= steps) return;
    char* const to = shared.input(stage);
    for_each([&](int row, int gate, int piece) {
      const Row& of = rows[row];
      if (step < of.length) {
        FetchUnits<kBytes>(to + place(row, gate, piece), of.at(args.wx, step, kDescending) + channel(gate, piece),
                           piece * kPieceUnits, team.left());
      }
    });
    if constexpr (kReset) {
      for (int i = first; i < kOwnRows; i += stride) {
        shared.reset(stage)[i] = ResetsAt(args.rows, rows[i], step);
      }
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared.inputs[stage].address())
                 : "memory");
    shared.inputs[stage].arrive();
  }

  /// Waits until the cells of a step have been applied; the states that enter the first one count as made, too. A warp
  /// arrives for the step after it at once: it sees every phase, and no multiplying warp gets two ahead.
  __device__ __forceinline__ void wait(int portion, int number) const {
    if (number == 0 && first % 32 == 0) shared.made[portion].arrive();
    shared.made[portion].wait(number & 1);
    if (first % 32 == 0) shared.made[portion].arrive();
  }

  __device__ __forceinline__ void run() const {
    for (int turn = 0; turn < kInputStages; ++turn) fetch(turn);
    for (int portion = 0; portion < kPortions; ++portion) wait(portion, 0);
    int turn = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll 1
      for (int portion = 0; portion < kPortions; ++portion, ++turn) {
        wait(portion, step + 1);
        if constexpr (kTraining) {
          const char* const from = shared.input(turn % kInputStages);
          for_each([&](int row, int gate, int piece) {
            const Row& of = shared.rows[portion * kRows + team.own_row() + row];
            if (step >= of.length) return;
            StoreUnits(of.at(args.sums, step, kDescending) + channel(gate, piece),
                       *(const uint4*)(from + place(row, gate, piece)), piece * kPieceUnits, team.left());
          });
          __syncwarp();
        }
        fetch(turn + kInputStages);
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
};

/// Part of a thread of a warpgroup that multiplies: lane (u, p, t) has unit u of the warp's 4 units, and in a tile of 8
/// rows row 2 t + p. Rows count among the block's own rows of a portion.
struct Multiplier : Product {
  const Shared& shared;
  const Team& team;
  const TeamExchange& exchange;
  const DenseForwardArguments& args;
  float state[kPortions][kTiles][kStates], bias_ih[kGates], bias_hh[kGates];
  Learnt learnt;

  __device__ __forceinline__ int u() const { return lane / 8; }
  __device__ __forceinline__ bool odd() const { return lane & 4; }
  __device__ __forceinline__ int row_of(int tile) const {
    return ((kWide ? 0 : part * kTiles) + tile) * 8 + lane % 4 * 2 + lane / 4 % 2;
  }
  __device__ __forceinline__ const Row& row_at(int portion, int own) const {
    return shared.rows[portion * kRows + team.own_row() + own];
  }
  /// Returns the first unit of this warp, counted among the block's units.
  __device__ __forceinline__ int warp_unit() const { return (kWide ? part * 16 : 0) + 4 * warp; }
  __device__ __forceinline__ int unit() const { return team.first_unit() + warp_unit() + u(); }
  __device__ __forceinline__ bool exists() const { return IsOfHead(unit()); }

  /// Row `row` of a warp's 16 rows of the part's tile of R; null: zeros.
  PENSTOCK_DEVICE const char* matrix_row(const DenseForwardArguments& args, const Team& team, int part, int warp,
                                         int row) {
    const int gate = row / 8 * 2 + row % 2;
    const int unit = team.first_unit() + (kWide ? part * 16 : 0) + 4 * warp + row % 8 / 2;
    const bool exists = gate < kGates && IsOfHead(unit);
    return exists ? args.recurrent + (((Index)team.head * kGates + gate) * kHead + unit) * (kHead * kBytes) : nullptr;
  }
  /// Returns the head's column that is a column of the block's.
  PENSTOCK_DEVICE int column_of_head(const Team& team, int column) {
    return team.share() * (kShape.chunks() * WarpgroupShape::chunk_units) + column;
  }
  PENSTOCK_DEVICE float matrix_value(const char* row, int column) {
    return row != nullptr && IsOfHead(column) ? ((const float*)row)[column] : 0.0f;
  }
  /// Returns a term of two columns of a row of floats.
  PENSTOCK_DEVICE unsigned matrix_pair(const char* row, int column, int term, float scale) {
    return MatrixTerm(matrix_value(row, column) * scale, matrix_value(row, column + 1) * scale, term);
  }
  /// Returns eight columns of a row.
  PENSTOCK_DEVICE uint4 matrix_piece(const char* row, int column, int term, float scale) {
    unsigned word[4] = {};
    if constexpr (kBytes == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = matrix_pair(row, column + 2 * i, term, scale);
    } else if (row != nullptr) {
      ForAccesses<kBytes>(column, kHead, [&](int at) {
        const auto part = Vector<Storage, kAccess / kBytes>::read(row + column * kBytes + at);
#pragma unroll
        for (int i = 0; i < kAccess / 4; ++i) word[at / 4 + i] = part.word[i];
      });
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
  __device__ __forceinline__ void take_matrix() {
    // The steps' columns lie a fixed number of bytes behind the first one's.
    const char* rows[2];
    const int first = column_of_head(team, column_of(part, 0) + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i] = matrix_row(args, team, part, warp, lane / 4 + i * 8);
      if (kBytes == 2 && rows[i] != nullptr) rows[i] += first * kBytes;
    }
    hold([&](int k, int i, int term) {
      const int further = column_of(0, kShape.held_place(k / kSteps)) + k % kSteps * 16 + i / 2 * 8;
      if constexpr (kBytes == 4) {
        return matrix_pair(rows[i % 2], first + further, term, ScalesOfMatrix(shared.start)[0]);
      } else {
        const bool exists = rows[i % 2] != nullptr && IsOfHead(first + further);
        return exists ? *(const unsigned*)(rows[i % 2] + further * kBytes) : 0u;
      }
    });
  }
  __device__ __forceinline__ void init() {
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const Index at = (Index)g * args.hidden + team.head * kHead + unit();
      bias_ih[g] = args.bias_ih != nullptr && exists() ? args.bias_ih[at] : 0.0f;
      bias_hh[g] = args.bias_hh != nullptr && exists() ? args.bias_hh[at] : 0.0f;
      if constexpr (!DenseCell::split) bias_hh[g] += bias_ih[g], bias_ih[g] = 0.0f;
    }
    learnt.read(args.learnt, args.hidden, team.head * kHead + unit(), exists());
#pragma unroll
    for (int portion = 0; portion < kPortions; ++portion) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int number = row_at(portion, row_of(n)).number;
#pragma unroll
        for (int i = 0; i < kStates; ++i) {
          const Index at = ((Index)i * args.rows.rows + number) * args.hidden + team.head * kHead + unit();
          state[portion][n][i] = args.state_in != nullptr && number >= 0 && exists() ? args.state_in[at] : 0.0f;
        }
      }
      send(portion, true);
    }
  }

  /// Lays h where the sender finds it: four tiles at once, lane u gets the four units of tile u. Of floats, the first h
  /// may be one that halves do not have: it becomes NaN. The sum of two terms does so by itself.
  __device__ __forceinline__ void send(int portion, bool first = false) const {
    constexpr float most_of_halves = 65504;
#pragma unroll
    for (int n = 0; n < (kBytes == 4 ? kTiles : 0); ++n) {
      const float h = state[portion][n][0];
      *(float*)(shared.sent(portion) + row_of(n) * kShape.sent_pitch() + (warp_unit() + u()) * kBytes) =
          kTerms == 1 && first && SizeOf(h) > __float_as_uint(most_of_halves) ? __uint_as_float(0x7fffffffu) : h;
    }
#pragma unroll
    for (int n = 0; n < (kBytes == 2 ? kTiles : 0); n += 4) {
      const auto h = [&](int i) { return n + i < kTiles ? state[portion][n + i < kTiles ? n + i : 0][0] : 0.0f; };
      unsigned first = Half::narrow(h(0), h(1)), second = Half::narrow(h(2), h(3));
      TransposeFour(first, second, lane);
      if (kTiles % 4 == 0 || n + u() < kTiles) {
        *(uint2*)(shared.sent(portion) + (row_of(n) + 8 * u()) * (kUnits * kBytes) + warp_unit() * kBytes) =
            make_uint2(first, second);
      }
    }
    __syncwarp();
    if (lane == 0) shared.made[portion].arrive();
  }

  /// Adds what the other warpgroup has of this one's rows, and passes on what is of the other's.
  __device__ __forceinline__ void add_up(float (&own)[kTiles * 4], const float (&sum)[kRows / 2], int turn) const {
    constexpr int bytes = kShape.passed_bytes();
    char* const passed = shared.start + kShape.passed_at() + (warp * 32 + lane) * 16;
    // All of what was passed the turn before has been read.
    if (turn > 0) asm volatile("bar.sync 2, %0;" ::"n"(2 * kParts * kWarpgroup) : "memory");
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float4 v;
      float* const four = (float*)&v;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float lower = sum[n * 4 + i], upper = sum[(kTiles + n) * 4 + i];
        own[n * 4 + i] = part == 0 ? lower : upper;
        four[i] = part == 0 ? upper : lower;
      }
      *(float4*)(passed + part * bytes + n * (kWarpgroup * 16)) = v;
    }
    asm volatile("bar.sync 1, %0;" ::"n"(kParts * kWarpgroup) : "memory");
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float4 v = *(const float4*)(passed + (1 - part) * bytes + n * (kWarpgroup * 16));
      own[n * 4] += v.x, own[n * 4 + 1] += v.y, own[n * 4 + 2] += v.z, own[n * 4 + 3] += v.w;
    }
    asm volatile("bar.arrive 2, %0;" ::"n"(2 * kParts * kWarpgroup) : "memory");
  }

  /// Applies the cell to a tile of 8 rows.
  __device__ __forceinline__ void apply(float (&own)[kStates], const float* sum, int row_number, int portion, int step,
                                        int stage) const {
    const Row& row = row_at(portion, row_number);
    const bool live = step < row.length && exists(), reset = kReset && shared.reset(stage)[row_number] != 0;
    char* const input = shared.input(stage) + row_number * kShape.input_pitch() + warp_unit() * kBytes;
    char* const of_gate = input + min(u(), kGates - 1) * (kUnits * kBytes);
    float* const own_unit = (float*)input + u();  // of floats
    unsigned first = 0, second = 0;
    if constexpr (kBytes == 2) {
      first = ((const unsigned*)of_gate)[0], second = ((const unsigned*)of_gate)[1];
      TransposeFour(first, second, lane);
    }
    // A pair of lanes has two gates each of two rows, and gets all gates of one.
    const float even = __shfl_xor_sync(0xffffffffu, odd() ? sum[0] : sum[1], 4);
    const float later = __shfl_xor_sync(0xffffffffu, odd() ? sum[2] : sum[3], 4);
    const float product[4] = {odd() ? even : sum[0], odd() ? sum[1] : even, odd() ? later : sum[2],
                              odd() ? sum[3] : later};
    Real wx[kGates], rh[kGates], prev[kStates], next[kStates], save[kSaved];
    float kept[4] = {0, 0, 0, 0};
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const unsigned word = g / 2 == 0 ? first : second;
      wx[g] = Real((kBytes == 4 ? own_unit[g * kUnits] : Half::widen(g % 2 == 0 ? word & 0xffffu : word >> 16)) +
                   bias_ih[g]);
      rh[g] = Real((reset ? 0.0f : product[g]) + bias_hh[g]);
      kept[g] = DenseCell::kept(wx[g], rh[g]).value;
    }
#pragma unroll
    for (int i = 0; i < kStates; ++i) prev[i] = Real(reset ? 0.0f : own[i]);
    DenseCell::forward<Rule>(wx, rh, prev, learnt, next, save);
    if constexpr (kTraining) {
      if (live) {
        float* const states = (float*)row.at(args.states, step, kDescending) + team.head * kHead + unit();
#pragma unroll
        for (int i = 1; i < kStates; ++i) __stcs(states + (Index)(i - 1) * args.hidden, prev[i].value);
      }
      if constexpr (kBytes == 4) {
#pragma unroll
        for (int g = 0; g < kGates; ++g) own_unit[g * kUnits] = kept[g];
      } else {
        unsigned low = Half::narrow(kept[0], kept[1]), high = Half::narrow(kept[2], kept[3]);
        TransposeFour(low, high, lane);
        __syncwarp();
        if (u() < kGates) *(uint2*)of_gate = make_uint2(low, high);
      }
    }
#pragma unroll
    for (int i = 0; i < kStates; ++i) own[i] = live ? next[i].value : own[i];
    if constexpr (kEveryState) {
      if (live) {
        float* const states = (float*)row.at(args.every_state, step, kDescending) + team.head * kHead + unit();
#pragma unroll
        for (int i = 1; i < kStates; ++i) __stcs(states + (Index)(i - 1) * args.hidden, own[i]);
      }
    }
  }

  __device__ __forceinline__ void run(int steps) {
    take_matrix();
    init();
    int turn = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int portion = 0; portion < kPortions; ++portion, ++turn) {
        float own[kTiles * 4];
        {
          float sum[kRows / 2];
          multiply(sum, turn);
          if constexpr (kShares > 1) {
            hand_out(own, sum, exchange, team, portion, step);
          } else if constexpr (kWide) {
#pragma unroll
            for (int i = 0; i < kRows / 2; ++i) own[i] = sum[i];
          } else {
            add_up(own, sum, turn);
          }
        }
        if constexpr (kShares > 1) collect(own, exchange, team, portion, step);
        const int stage = turn % kInputStages;
        shared.inputs[stage].wait(turn / kInputStages & 1);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) apply(state[portion][n], own + n * 4, row_of(n), portion, step, stage);
        send(portion);
      }
    }
    finish();
  }

  __device__ __forceinline__ void finish() const {
#pragma unroll
    for (int portion = 0; portion < kPortions; ++portion) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const Row& row = row_at(portion, row_of(n));
        if (row.number < 0 || !exists()) continue;
        const int channel = team.head * kHead + unit();
        for (int step = row.length; step < row.padded; ++step) {
          Vector<Storage, 1>::zero().put(row.at(args.y, step, kDescending) + channel * kBytes);
          if constexpr (kEveryState) {
            float* const states = (float*)row.at(args.every_state, step, kDescending) + channel;
            for (int i = 1; i < kStates; ++i) states[(Index)(i - 1) * args.hidden] = 0.0f;
          }
        }
        if (args.state_out == nullptr) continue;
#pragma unroll
        for (int i = 0; i < kStates; ++i) {
          args.state_out[((Index)i * args.rows.rows + row.number) * args.hidden + channel] = state[portion][n][i];
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    DenseWarpgroupForward(const __grid_constant__ DenseChipForwardArguments all) {
  extern __shared__ __align__(1024) char memory[];
  const DenseForwardArguments& args = all.call;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const Team team = Team::here(all.first, args.heads);
  const Shared shared = Shared::of(memory);
  const TeamExchange exchange = TeamExchange::of(all.exchange, team.number);
  Prepare(shared, args.rows, team);
  if constexpr (kBytes == 4) {
    FindScales<false>(memory, [&](int part, int row, int column) {
      return Multiplier::matrix_value(Multiplier::matrix_row(args, team, part, row / 16, row % 16),
                                      Multiplier::column_of_head(team, column));
    });
  }
  LayMatrix<false>(memory, exchange, team, [&](int part, int row, int column, int term) {
    return Multiplier::matrix_piece(Multiplier::matrix_row(args, team, part, row / 16, row % 16),
                                    Multiplier::column_of_head(team, column), term, ScalesOfMatrix(memory)[0]);
  });
  __syncthreads();
  const int longest = LongestRow(shared.rows);

  if (warp >= kParts * 4) {
    SetRegisters<kFewRegisters, false>();
    const int helper = warp - kParts * 4;
    if (helper == 0) {
      Bring(shared.ring, exchange, team.share() * kItems, longest);
    } else if (helper == 1) {
      SendStates(shared, exchange, team, longest, args);
    } else if (helper - 2 < kLoaders) {
      InputLoader{shared, team, args, longest, (helper - 2) * 32 + lane}.run();
    } else {
      Stream(shared.matrix, exchange, team.member, longest * kPortions);
    }
  } else {
    SetRegisters<kManyRegisters, true>();
    Multiplier multiplier{{shared.ring, shared.matrix, warp / 4, warp % 4, lane}, shared, team, exchange, args};
    multiplier.run(longest);
  }
}
