// The forward pass of a dense cell: a block has one head and a slice of the rows, the recurrent matrix stays in
// registers, and all that a step reloads is h. While a step multiplies, the results of the one before it are written,
// and inputs of a later one are fetched.

#include "backend/cuda/kernels/dense/head.cuh"

constexpr HeadLayout kLayout = HeadForwardLayout(kShape);
constexpr int kChunks = kLayout.chunks;
static_assert(kLayout.total == kSharedBytes, "the plan counts as the kernel does");

using InputMover = Mover<kSlots, G, kHead * Storage::bytes, kGateBytes, kLayout.gates_pitch, kAccess, kThreads>;
using OutputMover = Mover<kSlots, 1, kHead * Storage::bytes, 0, kLayout.operand_pitch, kAccess, kThreads>;
using StatesMover =
    Mover<kSlots, (S > 1 ? S - 1 : 1), kHead * 4, kPadded * 4, kLayout.states_pitch, kStateAccess, kThreads>;

struct Forward {
  const DenseForwardArguments& args;
  char* shared;
  Thread at;
  Slice slice;
  Matrix<G, kChunks> matrix;
  Real state[kColumns][kUnits][S];
  float bias[G][kUnits];                               // of both products where they are only added, else of R h
  float input_bias[DenseCell::split ? G : 1][kUnits];  // of W x, else
  float twin_bias[kMeans && kTwins ? G : 1];           // of R h, of the neighbour
  Learnt learnt[kUnits];
  int length[kColumns];
  Resets resets;
  Values of_twin[G];  // R h of the neighbour

  __device__ __forceinline__ const Row* rows() const { return (const Row*)shared; }
  __device__ __forceinline__ char* operand(int step) const {
    return shared + kLayout.operand + (step & 1) * kLayout.operand_tile;
  }

  __device__ __forceinline__ uint4 row_of_matrix(int gate, int unit, int chunk) const {
    constexpr int values = 16 / Storage::bytes;
    const int first = (chunk * 4 + at.t) * values;
    const char* row =
        args.recurrent + (((Index)slice.head * G + gate) * kHead + unit) * (Index)(kHead * Storage::bytes);
    if (unit >= kHead) return make_uint4(0, 0, 0, 0);
    if constexpr (kAccess == 16) {
      return first < kHead ? __ldg((const uint4*)(row + first * Storage::bytes)) : make_uint4(0, 0, 0, 0);
    }
    return Gather<Storage>(
        [&](int i) { return first + i < kHead ? LoadBits<Storage>(row + (first + i) * Storage::bytes) : 0u; });
  }

  __device__ __forceinline__ void load_weights() {
    matrix.init(shared + kLayout.matrix, at, [&](int gate, int chunk) {
      return RowFragment{row_of_matrix(gate, at.pair, chunk), row_of_matrix(gate, at.pair + 1, chunk)};
    });
#pragma unroll
    for (int q = 0; q < G; ++q) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const float of_h = at.exists(i) ? BiasAt(args.bias_hh, q, args.hidden, slice.head, at.unit + i) : 0.0f;
        const float of_x = at.exists(i) ? BiasAt(args.bias_ih, q, args.hidden, slice.head, at.unit + i) : 0.0f;
        bias[q][i] = DenseCell::split ? of_h : of_h + of_x;
        if constexpr (DenseCell::split) input_bias[q][i] = of_x;
      }
      if constexpr (kMeans && kTwins) {
        const bool exists = at.twin_exists();
        twin_bias[q] = exists ? BiasAt(args.bias_hh, q, args.hidden, slice.head, at.twin()) : 0.0f;
        if (!DenseCell::split && exists) twin_bias[q] += BiasAt(args.bias_ih, q, args.hidden, slice.head, at.twin());
      }
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      learnt[i].read(args.learnt, args.hidden, slice.head * kHead + at.unit + i, at.exists(i));
    }
  }

  /// Offset of a state in [S, B, H].
  __device__ __forceinline__ Index state_place(int k, int j, int i) const {
    return ((Index)k * args.rows.rows + rows()[at.slot[j]].number) * args.hidden + slice.head * kHead + at.unit + i;
  }

  __device__ __forceinline__ void load_state() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const bool row_exists = rows()[at.slot[j]].number >= 0;
      length[j] = rows()[at.slot[j]].length;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
#pragma unroll
        for (int k = 0; k < S; ++k) {
          const bool given = args.state_in != nullptr && row_exists && at.exists(i);
          state[j][i][k] = Real(given ? args.state_in[state_place(k, j, i)] : 0.0f);
        }
      }
      Real h[kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) h[i] = state[j][i][0];
      write_operand(operand(0), j, h);
    }
  }

  __device__ __forceinline__ void store_state() const {
    if (args.state_out == nullptr) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (rows()[at.slot[j]].number < 0) continue;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
#pragma unroll
        for (int k = 0; k < S; ++k) {
          if (at.exists(i)) args.state_out[state_place(k, j, i)] = state[j][i][k].value;
        }
      }
    }
  }

  __device__ __forceinline__ void write_operand(char* tile, int j, const Real (&of)[kUnits]) const {
    float values[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) values[i] = at.exists(i) ? of[i].value : 0.0f;
    Units::of(values).put(tile + at.slot[j] * kLayout.operand_pitch + at.unit * Storage::bytes);
  }

  /// W x of the thread's units.
  struct Inputs {
    Units gate[kColumns][G];
  };
  __device__ __forceinline__ Inputs inputs(const char* stage) const {
    Inputs in;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int q = 0; q < G; ++q) {
        in.gate[j][q] =
            Units::read(stage + at.slot[j] * kLayout.gates_pitch + q * kGateBytes + at.unit * Storage::bytes);
      }
    }
    return in;
  }

  /// Returns the bias of the unit that value `v` of a product belongs to; of no use if the thread does not know that
  /// one.
  __device__ __forceinline__ float bias_of(int gate, int v) const {
    if constexpr (kMeans && kTwins) return v / 2 == at.t / 2 ? bias[gate][0] : twin_bias[gate];
    return bias[gate][kUnits == 2 ? v / 2 : 0];
  }

  /// Sums start from the biases.
  __device__ __forceinline__ void start(float (&sum)[G][4]) const {
#pragma unroll
    for (int q = 0; q < G; ++q) {
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[q][v] = bias_of(q, v);
    }
  }

  __device__ __forceinline__ void clear_resets(int step, float (&sum)[G][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (!resets.at(j, step)) continue;
#pragma unroll
      for (int q = 0; q < G; ++q) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          if (kColumns == 1 || v % 2 == j) sum[q][v] = bias_of(q, v);
        }
      }
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
#pragma unroll
        for (int k = 0; k < S; ++k) state[j][i][k] = Real(0.0f);
      }
    }
  }

  /// Tiles of what training keeps, from which the next step writes them.
  __device__ __forceinline__ char* kept_gates(int step) const {
    return shared + kLayout.kept_gates + (step & 1) * kLayout.gates_tile;
  }
  __device__ __forceinline__ char* kept_states(int step) const {
    return shared + kLayout.kept_states + (step & 1) * kLayout.states_tile;
  }

  __device__ __forceinline__ void keep(int step, int j, const float (&gates)[G][kUnits]) const {
#pragma unroll
    for (int q = 0; q < G; ++q) {
      Units::of(gates[q]).put(kept_gates(step) + at.slot[j] * kLayout.gates_pitch + q * kGateBytes +
                              at.unit * Storage::bytes);
    }
#pragma unroll
    for (int k = 1; k < S; ++k) {
      float values[kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) values[i] = state[j][i][k].value;
      Vector<F32, kUnits>::of(values).put(kept_states(step) + at.slot[j] * kLayout.states_pitch +
                                          (k - 1) * kPadded * 4 + at.unit * 4);
    }
  }

  /// The products of a thread's unit and column as the cell wants them.
  __device__ __forceinline__ void gather(const float (&sum)[G][4], const Units (&x)[G], int i, int j, Real (&wx)[G],
                                         Real (&rh)[G], float (&gates)[G][kUnits]) const {
#pragma unroll
    for (int q = 0; q < G; ++q) {
      wx[q] = Real(x[q].get(i) + (DenseCell::split ? input_bias[DenseCell::split ? q : 0][i] : 0.0f));
      rh[q] = Real(at.of(sum[q], i, j));
      gates[q][i] = DenseCell::kept(wx[q], rh[q]).value;
    }
  }

  __device__ __forceinline__ void advance(int step, int i, int j, const Real (&next)[S]) {
#pragma unroll
    for (int k = 0; k < S; ++k) {
      if (!kRagged || step < length[j]) state[j][i][k] = next[k];
    }
    if constexpr (kEveryState) {
      if (step >= length[j] || !at.exists(i)) return;
      float* const to = every_state(rows()[at.slot[j]], step) + at.unit + i;
#pragma unroll
      for (int k = 1; k < S; ++k) __stcs(to + (Index)(k - 1) * args.hidden, next[k].value);
    }
  }

  /// Returns the place of the states of the head's first unit.
  __device__ __forceinline__ float* every_state(const Row& row, int step) const {
    return (float*)row.at(args.every_state, step, kDescending) + (Index)slice.head * kHead;
  }
  /// Zeros beyond the rows' lengths.
  __device__ __forceinline__ void clear_states() const {
    for (int slot = 0; slot < kSlots; ++slot) {
      const Row& row = rows()[slot];
      for (int step = row.length; step < row.padded; ++step) {
        for (int i = threadIdx.x; i < (S - 1) * kHead; i += kThreads) {
          every_state(row, step)[(Index)(i / kHead) * args.hidden + i % kHead] = 0.0f;
        }
      }
    }
  }

  template <class Cell>
  __device__ __forceinline__ void one_phase(int step, const Inputs& in, const float (&sum)[G][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      Real h[kUnits];
      float gates[G][kUnits];
      Real next[kUnits][S];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        Real wx[G], rh[G], save[DenseCell::N];
        gather(sum, in.gate[j], i, j, wx, rh, gates);
        DenseCell::forward<Cell>(wx, rh, state[j][i], learnt[i], next[i], save);
        h[i] = next[i][0];
      }
      write_operand(operand(step + 1), j, h);
      if constexpr (kTraining) keep(step, j, gates);
#pragma unroll
      for (int i = 0; i < kUnits; ++i) advance(step, i, j, next[i]);
    }
  }

  /// Cells whose units read means over their head.
  template <class Cell>
  __device__ __forceinline__ void with_means(HeadMeans<false>& means, int step, const Inputs& in,
                                             const float (&sum)[G][4]) {
    Values wx[G], rh[G], prev[S], next[S], save[DenseCell::N];
    float gates[G][kUnits];
    if constexpr (kTwins) {
#pragma unroll
      for (int q = 0; q < G; ++q) of_twin[q].of[0] = Real(at.of_twin(sum[q]));
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      Real of_x[G], of_h[G];
      gather(sum, in.gate[0], i, 0, of_x, of_h, gates);
#pragma unroll
      for (int q = 0; q < G; ++q) wx[q].of[i] = of_x[q], rh[q].of[i] = of_h[q];
#pragma unroll
      for (int k = 0; k < S; ++k) prev[k].of[i] = state[0][i][k];
    }
    DenseCell::forward<Cell>(means, wx, rh, prev, learnt, next, save);
    write_operand(operand(step + 1), 0, next[0].of);
    if constexpr (kTraining) keep(step, 0, gates);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      Real of_unit[S];
#pragma unroll
      for (int k = 0; k < S; ++k) of_unit[k] = next[k].of[i];
      advance(step, i, 0, of_unit);
    }
  }

  /// Cells whose last gates wait for an operand that the first ones make.
  template <class Cell>
  __device__ __forceinline__ void two_phases(int step, const Inputs& in, float (&sum)[G][4]) {
    constexpr int first = DenseCell::first_gates;
    char* between = shared + kLayout.second_operand;
    Real save[kColumns][kUnits][DenseCell::N];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      Real of[kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        Real wx[G], rh[G];
        float gates[G][kUnits];
        gather(sum, in.gate[j], i, j, wx, rh, gates);
        Cell::forward_first(wx, rh, state[j][i], of[i], save[j][i]);
      }
      write_operand(between, j, of);
    }
    __syncthreads();
    matrix.template multiply<first, G - first>(sum, between + at.operand_slot * kLayout.operand_pitch, at);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      Real next[kUnits][S], h[kUnits];
      float gates[G][kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        Real wx[G], rh[G];
        gather(sum, in.gate[j], i, j, wx, rh, gates);
        Cell::forward_second(wx, rh, state[j][i], next[i], save[j][i]);
        h[i] = next[i][0];
      }
      write_operand(operand(step + 1), j, h);
      if constexpr (kTraining) keep(step, j, gates);
#pragma unroll
      for (int i = 0; i < kUnits; ++i) advance(step, i, j, next[i]);
    }
  }

  __device__ __forceinline__ void run() {
    const Index head_bytes = (Index)slice.head * kHead * Storage::bytes, float_bytes = (Index)slice.head * kHead * 4;
    const Index gate_stride = (Index)args.hidden * Storage::bytes, state_stride = (Index)args.hidden * 4;
    const InputMover wx(args.wx, rows(), head_bytes, gate_stride);
    const OutputMover outputs(args.y, rows(), head_bytes, 0);
    const InputMover sums(args.sums, rows(), head_bytes, gate_stride);
    const StatesMover states(args.states, rows(), float_bytes, state_stride);
    char* const stages = shared + kLayout.stage;
    for (int step = 0; step < kStages - 1; ++step) {
      wx.fetch(stages + step * kLayout.stage_tile, step);
      CommitCopies();
    }
    ClearShared(shared + kLayout.operand, kLayout.kept_gates - kLayout.operand);
    load_weights();
    __syncthreads();
    load_state();
    WaitForCopies<kStages - 2>();
    __syncthreads();
    int stage = 0, free_stage = kStages - 1;
#ifdef PENSTOCK_MEANS
    HeadMeans<false> means{at, of_twin};
#endif
    // The last round has no step: it writes the results of the one before.
    for (int step = 0; step <= slice.steps; ++step) {
      const auto output = outputs.read(operand(step));
      typename InputMover::Held kept_sums;
      typename StatesMover::Held kept_before;
      if constexpr (kTraining) kept_sums = sums.read(kept_gates(step - 1));
      if constexpr (kTraining && S > 1) kept_before = states.read(kept_states(step - 1));
      const Inputs in = inputs(stages + stage * kLayout.stage_tile);
      if constexpr (kReset) {
        if ((step & 31) == 0) resets.load(args.rows, rows(), at, step);
      }
      float sum[G][4];
      start(sum);
      matrix.template multiply<0, DenseCell::first_gates>(sum, operand(step) + at.operand_slot * kLayout.operand_pitch,
                                                          at);
      outputs.store(output, operand(step), step - 1);
      if constexpr (kTraining) sums.store(kept_sums, kept_gates(step - 1), step - 1);
      if constexpr (kTraining && S > 1) states.store(kept_before, kept_states(step - 1), step - 1);
#ifdef PENSTOCK_MEANS
      if (kTraining && means.writes() && step > 0 && step <= length[0]) {
        means.kept.store(AddressOfMeans(args.states, rows()[at.slot[0]], step - 1, args.hidden, slice.head), at.g);
      }
#endif
      if (step == slice.steps) break;
      wx.fetch(stages + free_stage * kLayout.stage_tile, step + kStages - 1);
      CommitCopies();
      if constexpr (kReset) clear_resets(step, sum);
      if constexpr (DenseCell::two_phases) {
        two_phases<Rule>(step, in, sum);
#ifdef PENSTOCK_MEANS
      } else if constexpr (kMeans) {
        with_means<Rule>(means, step, in, sum);
#endif
      } else {
        one_phase<Rule>(step, in, sum);
      }
      free_stage = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      WaitForCopies<kStages - 2>();
      __syncthreads();
    }
    store_state();
    if constexpr (kRagged) outputs.clear_padding();
    if constexpr (kRagged && kEveryState) clear_states();
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    DenseHeadForward(const __grid_constant__ DenseForwardArguments args) {
  extern __shared__ __align__(16) char shared[];
  Forward forward{args, shared, Thread::here()};
  forward.slice = Slice::find(args.rows, args.heads, (Row*)shared);
  forward.run();
}
