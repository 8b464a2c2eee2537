// The backward pass of a dense cell, from the last step to the first: a block has one head and a slice of the rows, the
// transposed recurrent matrix stays in registers, and all that a step reloads is the gradient of R h. Gates are made
// again from what the forward pass kept of them, away from the path that the steps wait for.

#include "backend/cuda/kernels/dense/head.cuh"

constexpr HeadLayout kLayout = HeadBackwardLayout(kShape);
constexpr int kChunks = kLayout.chunks;
static_assert(kLayout.total == kSharedBytes, "the plan counts as the kernel does");

constexpr bool kTwoTiles = DenseCell::split || DenseCell::two_phases;  // gradients of W x have tiles of their own
constexpr int kHeadBytes = kHead * Storage::bytes;
using GatesMover = Mover<kSlots, G, kHeadBytes, kGateBytes, kLayout.gates_pitch, kAccess, kThreads>;
using OperandMover = Mover<kSlots, G, kHeadBytes, kGateBytes, kLayout.operand_pitch, kAccess, kThreads>;
using RowMover = Mover<kSlots, 1, kHeadBytes, 0, kLayout.output_pitch, kAccess, kThreads>;
using StatesMover =
    Mover<kSlots, (S > 1 ? S - 1 : 1), kHead * 4, kPadded * 4, kLayout.states_pitch, kStateAccess, kThreads>;

constexpr int kMeanBytes = (kMeans ? kTapedFloats : 4) * 4;  // of a row and head
using MeansMover = Mover<kSlots, 1, kMeanBytes, 0, kMeanBytes, 4, kThreads>;

/// Offsets of the parts of a stage.
constexpr int kInputPart = kLayout.gates_tile, kStatesPart = kInputPart + (DenseCell::split ? kLayout.gates_tile : 0);
constexpr int kGradientPart = kStatesPart + kLayout.states_tile, kOutputPart = kGradientPart + kLayout.output_tile;
constexpr int kMeansPart = kOutputPart + kLayout.output_tile;

struct Backward {
  const DenseBackwardArguments& args;
  char* shared;
  Thread at;
  Slice slice;
  Matrix<1, kChunks> matrix;
  Real carry[kColumns][kUnits][S];  // gradient of the state that the step before left, but for what flows through R h
  float input_bias[DenseCell::split ? G : 1][kUnits];
  Learnt learnt[kUnits], dlearnt[kColumns][kUnits];
  int length[kColumns];
  bool forgets[kColumns];  // the step that ran last began with a reset
  Resets resets;

  __device__ __forceinline__ const Row* rows() const { return (const Row*)shared; }
  __device__ __forceinline__ char* operand(int step) const {
    return shared + kLayout.operand + (step & 1) * kLayout.operand_tile;
  }
  __device__ __forceinline__ char* second_operand() const { return shared + kLayout.second_operand; }
  __device__ __forceinline__ char* input_gradients(int step) const {
    return shared + kLayout.kept_gates + (step & 1) * kLayout.gates_tile;
  }
  __device__ __forceinline__ char* second_values(int step) const {
    return shared + kLayout.kept_states + (step & 1) * kLayout.output_tile;
  }

  /// A thread's part of the transposed matrix: rows are units of h, a chunk is some units of the gates. Neighbouring
  /// rows lie side by side in memory, so that two halves come with one access.
  __device__ __forceinline__ RowFragment fragment(int chunk) const {
    constexpr int values = 16 / Storage::bytes;
    // A chunk is of one gate wherever gates fill chunks, and the compiler then sees which.
    constexpr bool whole = kGateBytes % kChunkBytes == 0;
    const int begin = chunk * 4 * values, first = begin + at.t * values;
    const int gate = (whole ? begin : first) / kPadded;
    const int of = whole ? begin % kPadded + at.t * values : first % kPadded;
    const char* rows_of_gate =
        args.recurrent + ((((Index)slice.head * G + gate) * kHead + of) * kHead + at.pair) * Storage::bytes;
    const auto from = [&](int i) { return rows_of_gate + i * (kHead * Storage::bytes); };
    const auto exists = [&](int i, int row) { return at.pair + row < kHead && gate < G && of + i < kHead; };
    if constexpr (Storage::bytes == 2 && kHead % 2 == 0 && kAccess >= 4) {
      unsigned both[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) both[i] = exists(i, 0) ? __ldg((const unsigned*)from(i)) : 0u;
      const auto pair = [&](int i, unsigned which) { return __byte_perm(both[i], both[i + 1], which); };
      constexpr unsigned low = 0x5410, high = 0x7632;
      return {make_uint4(pair(0, low), pair(2, low), pair(4, low), pair(6, low)),
              make_uint4(pair(0, high), pair(2, high), pair(4, high), pair(6, high))};
    }
    const auto row = [&](int of_pair) {
      return Gather<Storage>(
          [&](int i) { return exists(i, of_pair) ? LoadBits<Storage>(from(i) + of_pair * Storage::bytes) : 0u; });
    };
    return {row(0), row(1)};
  }

  __device__ __forceinline__ void load_weights() {
    matrix.init(shared + kLayout.matrix, at, [&](int, int chunk) { return fragment(chunk); });
    if constexpr (DenseCell::split) {
#pragma unroll
      for (int q = 0; q < G; ++q) {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          input_bias[q][i] = at.exists(i) ? BiasAt(args.bias_ih, q, args.hidden, slice.head, at.unit + i) : 0.0f;
        }
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
  __device__ __forceinline__ float state_at(const float* states, int k, int j, int i) const {
    const bool given = states != nullptr && rows()[at.slot[j]].number >= 0 && at.exists(i);
    return given ? states[state_place(k, j, i)] : 0.0f;
  }

  __device__ __forceinline__ void load_carry() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      length[j] = rows()[at.slot[j]].length;
      forgets[j] = false;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        dlearnt[j][i].clear();
#pragma unroll
        for (int k = 0; k < S; ++k) carry[j][i][k] = Real(state_at(args.dstate_out, k, j, i));
      }
    }
  }

  /// Returns the gradient that a step passes on to the h before it. `through`: its part that flows through R h.
  __device__ __forceinline__ float passed_on(int step, int i, int j, const float (&through)[4]) const {
    const float all = forgets[j] ? 0.0f : carry[j][i][0].value + at.of(through, i, j);
    return step < length[j] ? Clipped(all, args.clip) : all;
  }

  /// Adds the rows' gradients of the learnt vectors to what is there.
  __device__ __forceinline__ void store_learnt() const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int row = rows()[at.slot[j]].number;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if (row < 0 || !at.exists(i)) continue;
        dlearnt[j][i].add_to(args.dlearnt, row, args.hidden, slice.head * kHead + at.unit + i);
      }
    }
  }

  /// `through`: what flows through R h.
  __device__ __forceinline__ void store_gradient(const float (&through)[4]) const {
    if (args.dstate_in == nullptr) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (rows()[at.slot[j]].number < 0) continue;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
#pragma unroll
        for (int k = 0; k < S; ++k) {
          const float all = k == 0 ? passed_on(0, i, j, through) : forgets[j] ? 0.0f : carry[j][i][k].value;
          if (at.exists(i)) args.dstate_in[state_place(k, j, i)] = all;
        }
      }
    }
  }

  /// Values of the tape for a step, one unit and one column.
  struct Kept {
    Real wx[G], rh[G], prev[S], dnext[S];
  };

  /// Values of the tape for both units, as they lie in a stage.
  struct Inputs {
    Units gates[G], input[DenseCell::split ? G : 1], dy, before;
    Vector<F32, kUnits> states[S > 1 ? S - 1 : 1];
  };

  __device__ __forceinline__ Inputs read(const char* stage, int j) const {
    Inputs in;
    const int unit = at.unit * Storage::bytes, slot = at.slot[j];
#pragma unroll
    for (int q = 0; q < G; ++q) {
      const int place = slot * kLayout.gates_pitch + q * kGateBytes + unit;
      in.gates[q] = Units::read(stage + place);
      if constexpr (DenseCell::split) in.input[q] = Units::read(stage + kInputPart + place);
    }
#pragma unroll
    for (int k = 1; k < S; ++k) {
      in.states[k - 1] = Vector<F32, kUnits>::read(stage + kStatesPart + slot * kLayout.states_pitch +
                                                   (k - 1) * kPadded * 4 + at.unit * 4);
    }
    in.dy = Units::read(stage + kGradientPart + slot * kLayout.output_pitch + unit);
    in.before = Units::read(stage + kOutputPart + slot * kLayout.output_pitch + unit);
    return in;
  }

  __device__ __forceinline__ Kept unpack(const Inputs& in, int step, int i, int j, const float (&through)[4]) const {
    Kept kept;
#pragma unroll
    for (int q = 0; q < G; ++q) {
      if constexpr (DenseCell::split) {
        kept.wx[q] = Real(in.input[q].get(i) + input_bias[q][i]);
        kept.rh[q] = Real(in.gates[q].get(i));
      } else {
        kept.wx[q] = Real(in.gates[q].get(i));
        kept.rh[q] = Real(0.0f);
      }
    }
    kept.prev[0] = Real(step > 0 ? in.before.get(i) : state_at(args.state_in, 0, j, i));
    if constexpr (kReset) {
      if (resets.at(j, step)) kept.prev[0] = Real(0.0f);
    }
#pragma unroll
    for (int k = 1; k < S; ++k) kept.prev[k] = Real(in.states[k - 1].get(i));
#pragma unroll
    for (int k = 1; k < S; ++k) kept.dnext[k] = Real(forgets[j] ? 0.0f : carry[j][i][k].value);
    kept.dnext[0] = Real(passed_on(step + 1, i, j, through) + in.dy.get(i));
    if constexpr (kEveryState) {
      if (args.dstates.data != nullptr && step < length[j] && at.exists(i)) {
        const float* const from = (const float*)rows()[at.slot[j]].at(args.dstates, step, kDescending) +
                                  (Index)slice.head * kHead + at.unit + i;
#pragma unroll
        for (int k = 1; k < S; ++k) kept.dnext[k] = kept.dnext[k] + Real(from[(Index)(k - 1) * args.hidden]);
      }
    }
    return kept;
  }

  __device__ __forceinline__ void write(char* tile, int pitch, int gate, int j, const float (&values)[kUnits]) const {
    Units::of(values).put(tile + at.slot[j] * pitch + gate * kGateBytes + at.unit * Storage::bytes);
  }

  /// Gradients of gates first .. first + count - 1 to a tile; zeros of steps and units that do not exist.
  template <int first, int count>
  __device__ __forceinline__ void write_gates(char* tile, int pitch, int step, int j,
                                              const Real (&of)[kUnits][G]) const {
#pragma unroll
    for (int q = first; q < first + count; ++q) {
      float values[kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) values[i] = step < length[j] && at.exists(i) ? of[i][q].value : 0.0f;
      write(tile, pitch, q, j, values);
    }
  }

  __device__ __forceinline__ void advance(int step, int i, int j, const Real (&dprev)[S]) {
#pragma unroll
    for (int k = 0; k < S; ++k) {
      if (step < length[j]) carry[j][i][k] = dprev[k];
    }
  }

  template <class Cell>
  __device__ __forceinline__ void one_phase(int step, const Inputs (&all)[kColumns], const float (&through)[4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const Inputs& in = all[j];
      Real dwx[kUnits][G], drh[kUnits][G];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const Kept kept = unpack(in, step, i, j, through);
        Real next[S], save[DenseCell::N], dprev[S], of_learnt[Learnt::places];
        DenseCell::forward<Cell>(kept.wx, kept.rh, kept.prev, learnt[i], next, save);
        DenseCell::backward<Cell>(save, kept.prev, learnt[i], kept.dnext, of_learnt, dwx[i], drh[i], dprev);
        advance(step, i, j, dprev);
        if (step < length[j]) dlearnt[j][i].add(of_learnt);
      }
      write_gates<0, G>(operand(step), kLayout.operand_pitch, step, j, drh);
      if constexpr (DenseCell::split) write_gates<0, G>(input_gradients(step), kLayout.gates_pitch, step, j, dwx);
    }
  }

  /// Cells whose units read means over their head. `taped`: the means of the forward pass, of each slot.
  template <class Cell>
  __device__ __forceinline__ void with_means(HeadMeans<true>& means, const char* taped, int step,
                                             const Inputs (&all)[kColumns], const float (&through)[4]) {
    Values wx[G], rh[G], prev[S], dnext[S], next[S], save[DenseCell::N];
    Values dwx[G], drh[G], dprev[S], of_learnt[Learnt::places];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const Kept kept = unpack(all[0], step, i, 0, through);
#pragma unroll
      for (int q = 0; q < G; ++q) wx[q].of[i] = kept.wx[q], rh[q].of[i] = kept.rh[q];
#pragma unroll
      for (int k = 0; k < S; ++k) prev[k].of[i] = kept.prev[k], dnext[k].of[i] = kept.dnext[k];
    }
    TapedMeans of_forward;
    for (int i = 0; i < kUnits; ++i) of_forward.means[i] = taped + at.slot[0] * kMeanBytes;
    DenseCell::forward<Cell>(of_forward, wx, rh, prev, learnt, next, save);
    DenseCell::backward<Cell>(means, save, prev, learnt, dnext, of_learnt, dwx, drh, dprev);
    Real of_x[kUnits][G], of_h[kUnits][G];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      Real before[S];
#pragma unroll
      for (int q = 0; q < G; ++q) of_x[i][q] = dwx[q].of[i], of_h[i][q] = drh[q].of[i];
#pragma unroll
      for (int k = 0; k < S; ++k) before[k] = dprev[k].of[i];
      advance(step, i, 0, before);
#pragma unroll
      for (int k = 0; k < Learnt::count; ++k) {
        if (step < length[0]) dlearnt[0][i].of[k] += of_learnt[k].of[i].value;
      }
    }
    write_gates<0, G>(operand(step), kLayout.operand_pitch, step, 0, of_h);
    if constexpr (DenseCell::split) write_gates<0, G>(input_gradients(step), kLayout.gates_pitch, step, 0, of_x);
  }

  /// Computes a step of a cell whose last gates multiply an operand made by its first gates.
  template <class Cell>
  __device__ __forceinline__ void two_phases(int step, const Inputs (&all)[kColumns], const float (&through)[4]) {
    constexpr int first = DenseCell::first_gates;
    Real dwx[kColumns][kUnits][G], drh[kColumns][kUnits][G], dprev[kColumns][kUnits][S];
    Real save[kColumns][kUnits][DenseCell::N];
    Real prev[kColumns][kUnits][S];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const Inputs& in = all[j];
      float value[kUnits];
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const Kept kept = unpack(in, step, i, j, through);
        Real of, next[S];
        Cell::forward_first(kept.wx, kept.rh, kept.prev, of, save[j][i]);
        Cell::forward_second(kept.wx, kept.rh, kept.prev, next, save[j][i]);
        Cell::backward_second(save[j][i], kept.prev, kept.dnext, dwx[j][i], drh[j][i], dprev[j][i]);
        value[i] = step < length[j] && at.exists(i) ? of.value : 0.0f;
#pragma unroll
        for (int k = 0; k < S; ++k) prev[j][i][k] = kept.prev[k];
      }
      write(second_values(step), kLayout.output_pitch, 0, j, value);
      write_gates<first, G - first>(second_operand(), kLayout.operand_pitch, step, j, drh[j]);
    }
    __syncthreads();
    float of_operand[1][4] = {};
    matrix.template multiply<0, 1>(of_operand, second_operand() + at.operand_slot * kLayout.operand_pitch, at);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        Cell::backward_first(save[j][i], prev[j][i], Real(at.of(of_operand[0], i, j)), dwx[j][i], drh[j][i],
                             dprev[j][i]);
        advance(step, i, j, dprev[j][i]);
      }
      write_gates<0, first>(operand(step), kLayout.operand_pitch, step, j, drh[j]);
      write_gates<0, G>(input_gradients(step), kLayout.gates_pitch, step, j, dwx[j]);
    }
  }

  __device__ __forceinline__ void run() {
    load_weights();
    const Index head_bytes = (Index)slice.head * kHeadBytes, gate_stride = (Index)args.hidden * Storage::bytes;
    const Index float_bytes = (Index)slice.head * kHead * 4, state_stride = (Index)args.hidden * 4;
    const GatesMover gates(args.sums, rows(), head_bytes, gate_stride),
        inputs(args.wx, rows(), head_bytes, gate_stride);
    const GatesMover input_gradients_out(args.dwx, rows(), head_bytes, gate_stride);
    const OperandMover gradients_out(DenseCell::split ? args.drh : args.dwx, rows(), head_bytes, gate_stride);
    const RowMover dy(args.dy, rows(), head_bytes, 0), y(args.y, rows(), head_bytes, 0);
    const RowMover second(args.operand, rows(), head_bytes, 0);
    const StatesMover states(args.states, rows(), float_bytes, state_stride);
#ifdef PENSTOCK_MEANS
    const MeansMover taped(args.states, rows(), ((S - 1) * (Index)args.hidden + slice.head * kTapedFloats) * 4, 0);
    const Values none[G] = {};
    HeadMeans<true> means{at, none};
#endif
    char* const stages = shared + kLayout.stage;
    const auto fetch = [&](int stage, int step) {
      char* tile = stages + stage * kLayout.stage_tile;
      gates.fetch(tile, step);
      if constexpr (DenseCell::split) inputs.fetch(tile + kInputPart, step);
      if constexpr (S > 1) states.fetch(tile + kStatesPart, step);
      dy.fetch(tile + kGradientPart, step);
      y.fetch(tile + kOutputPart, step - 1);
#ifdef PENSTOCK_MEANS
      taped.fetch(tile + kMeansPart, step);
#endif
      CommitCopies();
    };
    // Results of a step in tiles, read early and written late.
    struct Results {
      typename OperandMover::Held gradients;
      typename GatesMover::Held input_gradients;
      typename RowMover::Held second;
    };
    const auto read_results = [&](int step) {
      Results results;
      if constexpr (!DenseCell::two_phases) results.gradients = gradients_out.read(operand(step));
      if constexpr (kTwoTiles) results.input_gradients = input_gradients_out.read(input_gradients(step));
      if constexpr (DenseCell::two_phases) results.second = second.read(second_values(step));
      return results;
    };
    const auto write_results = [&](const Results& results, int step) {
      if constexpr (!DenseCell::two_phases) gradients_out.store(results.gradients, operand(step), step);
      if constexpr (kTwoTiles) input_gradients_out.store(results.input_gradients, input_gradients(step), step);
      if constexpr (DenseCell::two_phases) second.store(results.second, second_values(step), step);
    };
    ClearShared(shared + kLayout.operand, kLayout.matrix - kLayout.operand);
    __syncthreads();
    const int last = slice.steps - 1;
    for (int ahead = 0; ahead < kStages - 1; ++ahead) fetch(ahead, last - ahead);
    load_carry();
    // A slice of rows without steps has no last one.
    if constexpr (kReset) resets.load(args.rows, rows(), at, max(last, 0) & ~31);
    WaitForCopies<kStages - 2>();
    __syncthreads();
    int stage = 0, free_stage = kStages - 1;
    for (int step = last; step >= 0; --step) {
      const Results results = read_results(step + 1);
      Inputs in[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) in[j] = read(stages + stage * kLayout.stage_tile, j);
      float through[1][4] = {};
      matrix.template multiply<0, 1>(through, operand(step + 1) + at.operand_slot * kLayout.operand_pitch, at);
      write_results(results, step + 1);
      fetch(free_stage, step - (kStages - 1));
      if constexpr (kReset) {
        if ((step & 31) == 31) resets.load(args.rows, rows(), at, step & ~31);
      }
      if constexpr (DenseCell::two_phases) {
        two_phases<Rule>(step, in, through[0]);
#ifdef PENSTOCK_MEANS
      } else if constexpr (kMeans) {
        with_means<Rule>(means, stages + stage * kLayout.stage_tile + kMeansPart, step, in, through[0]);
#endif
      } else {
        one_phase<Rule>(step, in, through[0]);
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) forgets[j] = kReset && resets.at(j, step);
      free_stage = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      WaitForCopies<kStages - 2>();
      __syncthreads();
    }
    float through[1][4] = {};
    matrix.template multiply<0, 1>(through, operand(0) + at.operand_slot * kLayout.operand_pitch, at);
    write_results(read_results(0), 0);
    store_gradient(through[0]);
    store_learnt();
    if constexpr (kRagged) {
      gradients_out.clear_padding();
      if constexpr (kTwoTiles) input_gradients_out.clear_padding();
      if constexpr (DenseCell::two_phases) second.clear_padding();
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    DenseHeadBackward(const __grid_constant__ DenseBackwardArguments args) {
  extern __shared__ __align__(16) char shared[];
  Backward backward{args, shared, Thread::here()};
  backward.slice = Slice::find(args.rows, args.heads, (Row*)shared);
  backward.run();
}
