// Forward pass of dense cells with diagonal recurrent matrices (diagonal.cuh).
//
// A long chain is cut into pieces that run side by side, which is parallel in time by Newton's iteration: each
// piece runs exactly from a guess of the states that enter it, and says where that leads and, to first order, how
// that changes with the guess. A pass over the pieces (diagonal_join.cuh) makes better guesses of it. Where what leaves
// each piece is what enters the next one, up to a few units in the last place, the outputs are those of one run.
// Chains that have not come there are run by one thread (kExact).

#include "backend/cuda/kernels/dense/diagonal.cuh"

constexpr bool kTraining = kPass.training, kPieces = kPass.pieces, kExact = kPass.exact;

struct Forward {
  const DenseForwardArguments& call;
  const Piece& piece;
  UnitWeights weights;
  float bias_hh[kGates];
  Line wx[kGates];
  One ring[kAhead][kGates];

  __device__ __forceinline__ Forward(const DenseForwardArguments& arguments, const Piece& p)
      : call(arguments), piece(p), weights(call.recurrent, call.bias_ih, call.learnt, call.hidden, p.channel) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      bias_hh[g] = BiasAt(call.bias_hh, g, call.hidden, p.channel);
      wx[g] = p.line(call.wx, g, call.hidden, kBytes);
    }
  }

  __device__ __forceinline__ void load(int step, One (&values)[kGates]) const {
#pragma unroll
    for (int g = 0; g < kGates; ++g) values[g] = One::read(wx[g].at(step));
  }

  template <class Cell, class V>
  __device__ __forceinline__ void apply(const One (&values)[kGates], const V (&prev)[kStates], V (&next)[kStates],
                                        V (&of_x)[kGates], V (&of_h)[kGates]) const {
    V save[kSaved];
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      of_x[g] = V(values[g].get(0) + weights.bias_ih[g]);
      of_h[g] = g < kFirst ? MulAdd(V(weights.recurrent[g]), prev[0], V(bias_hh[g])) : V(0.0f);
    }
    if constexpr (DenseCell::two_phases) {
      V operand;
      Cell::forward_first(of_x, of_h, prev, operand, save);
#pragma unroll
      for (int g = kFirst; g < kGates; ++g) of_h[g] = MulAdd(V(weights.recurrent[g]), operand, V(bias_hh[g]));
      Cell::forward_second(of_x, of_h, prev, next, save);
    } else {
      DenseCell::forward<Cell>(of_x, of_h, prev, weights.learnt, next, save);
    }
  }

  /// Writes the results of a step: y, and the tape if the call has one.
  template <class V>
  __device__ __forceinline__ void write(int step, const V (&prev)[kStates], const V (&next)[kStates],
                                        const V (&of_x)[kGates], const V (&of_h)[kGates]) const {
    StoreOne(piece.line(call.y, 0, call.hidden, kBytes).at(step), ValueOf(next[0]));
    if constexpr (kTraining) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const float kept = DenseCell::split ? ValueOf(of_h[g]) : ValueOf(of_x[g]) + ValueOf(of_h[g]);
        StoreOne(piece.line(call.sums, g, call.hidden, kBytes).at(step), kept);
      }
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        *(float*)piece.line(call.states, k - 1, call.hidden, 4).at(step) = ValueOf(prev[k]);
      }
    }
    if constexpr (kEveryState) {
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        *(float*)piece.line(call.every_state, k - 1, call.hidden, 4).at(step) = ValueOf(next[k]);
      }
    }
  }

  /// Runs steps begin to end; `state` enters and leaves.
  template <class V>
  __device__ __forceinline__ void run(int begin, int end, bool writes, V (&state)[kStates]) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (begin + k < end) load(begin + k, ring[k]);
    }
    for (int base = begin; base < end; base += kAhead) {
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int step = base + k;
        if (step >= end) break;
        if (ResetsAt(call.rows, piece.row, step)) {
#pragma unroll
          for (int s = 0; s < kStates; ++s) state[s] = V(0.0f);
        }
        V next[kStates], of_x[kGates], of_h[kGates];
        apply<Rule>(ring[k], state, next, of_x, of_h);
        if (step + kAhead < end) load(step + kAhead, ring[k]);
        if (writes) write(step, state, next, of_x, of_h);
#pragma unroll
        for (int s = 0; s < kStates; ++s) state[s] = next[s];
      }
    }
  }
};

/// State k that enters the first piece.
PENSTOCK_DEVICE float StateIn(const DenseForwardArguments& call, const Piece& p, int k) {
  return call.state_in != nullptr ? call.state_in[k * p.chains + p.chain] : 0.0f;
}

PENSTOCK_DEVICE void RunPiece(const DenseDiagonalForwardArguments& args, const Piece& p) {
  Dual state[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    const float guess = p.number == 0        ? StateIn(args.call, p, k)
                        : args.iteration > 1 ? args.entering[p.in<kStates>(k)]
                                             : 0.0f;
    Enter(state[k], guess, k);
    if (args.iteration == 1) args.entering[p.in<kStates>(k)] = guess;
  }
  Forward(args.call, p).run(p.begin, p.end, args.iteration > 1, state);
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    args.leaving[p.in<kStates>(k)] = state[k].value.value;
#pragma unroll
    for (int j = 0; j < kStates; ++j) args.jacobian[p.in<kStates * kStates>(k * kStates + j)] = state[k].slope[j].value;
  }
}

PENSTOCK_DEVICE void RunChain(const DenseForwardArguments& call, const Piece& p) {
  Real state[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) state[k] = Real(StateIn(call, p, k));
  Forward(call, p).run(0, p.row.length, true, state);
  if (call.state_out == nullptr) return;
#pragma unroll
  for (int k = 0; k < kStates; ++k) call.state_out[k * p.chains + p.chain] = state[k].value;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    DenseDiagonalForward(const __grid_constant__ DenseDiagonalForwardArguments args) {
  const DenseForwardArguments& call = args.call;
  const Piece p = Piece::here(call.rows, call.hidden, args.piece_steps);
  if (p.number >= args.pieces || p.row.number < 0) return;
  if constexpr (kPieces && !kExact) {
    if (args.iteration == 1 || args.iterations[p.chain] == 0) RunPiece(args, p);
    return;
  }
  if (!kExact || args.iterations[p.chain] == 0) RunChain(call, p);
  p.clear_padding(call.y, 1, call.hidden, kBytes);
  if constexpr (kEveryState) p.clear_padding(call.every_state, kStates - 1, call.hidden, 4);
}
