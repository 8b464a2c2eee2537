// Backward pass of dense cells with diagonal recurrent matrices (diagonal.cuh). A chain that is cut into pieces is
// run twice: what leaves a piece changes linearly with the gradients that enter it, so a first run, from none,
// finds the effect of each piece (kSummary), diagonal_pass.cuh passes the gradients from piece to piece, and a second
// one writes.
//
// Each piece also sums its share of the gradients of the weights, over kAhead steps and then over these sums.

#include "backend/cuda/kernels/dense/diagonal.cuh"

constexpr bool kSummary = kPass.summary;

/// Inputs of a step.
struct Inputs {
  One sums[kGates], wx[DenseCell::split ? kGates : 1], dy;
  float before[kStates], dothers[kStates];  // states that entered; gradients of those that left but h
};

/// Gradients of the weights of a unit.
struct WeightSums {
  float recurrent[kGates], bias_ih[kGates], bias_hh[kGates];
  Learnt learnt;

  __device__ __forceinline__ void clear() {
    learnt.clear();
#pragma unroll
    for (int g = 0; g < kGates; ++g) recurrent[g] = bias_ih[g] = bias_hh[g] = 0.0f;
  }
  __device__ __forceinline__ void add(const WeightSums& other) {
    for (int k = 0; k < Learnt::count; ++k) learnt.of[k] += other.learnt.of[k];
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      recurrent[g] += other.recurrent[g], bias_ih[g] += other.bias_ih[g], bias_hh[g] += other.bias_hh[g];
    }
  }
};

struct Backward {
  const DenseBackwardArguments& call;
  const Piece& piece;
  UnitWeights weights;
  Line sums[kGates], wx[DenseCell::split ? kGates : 1], y, dy;
  WeightSums some, all;

  __device__ __forceinline__ Backward(const DenseBackwardArguments& arguments, const Piece& p)
      : call(arguments), piece(p), weights(call.recurrent, call.bias_ih, call.learnt, call.hidden, p.channel) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) sums[g] = p.line(call.sums, g, call.hidden, kBytes);
    if constexpr (DenseCell::split) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) wx[g] = p.line(call.wx, g, call.hidden, kBytes);
    }
    y = p.line(call.y, 0, call.hidden, kBytes);
    dy = p.line(call.dy, 0, call.hidden, kBytes);
    some.clear(), all.clear();
  }

  __device__ __forceinline__ void load(int step, Inputs& in) const {
#pragma unroll
    for (int g = 0; g < kGates; ++g) in.sums[g] = One::read(sums[g].at(step));
    if constexpr (DenseCell::split) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) in.wx[g] = One::read(wx[g].at(step));
    }
    in.dy = call.dy.data != nullptr ? One::read(dy.at(step)) : One::zero();
    if (step > 0) {
      in.before[0] = LoadOne(y.at(step - 1));
    } else {
      in.before[0] = call.state_in != nullptr ? call.state_in[piece.chain] : 0.0f;
    }
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      in.before[k] = *(const float*)piece.line(call.states, k - 1, call.hidden, 4).at(step);
      in.dothers[k] = 0.0f;
      if constexpr (kEveryState) {
        in.dothers[k] = *(const float*)piece.line(call.dstates, k - 1, call.hidden, 4).at(step);
      }
    }
  }

  template <class V>
  struct Gradients {
    V dwx[kGates], drh[kGates], dprev[kStates], dlearnt[Learnt::places];
    float operand;  // what the matrix multiplies in a second phase
  };

  /// dprev[0] with what flows through R.
  template <class Cell, class V>
  __device__ __forceinline__ void differentiate(const Inputs& in, bool reset, const V (&dnext)[kStates],
                                                Gradients<V>& d) const {
    V of_x[kGates], of_h[kGates], prev[kStates], next[kStates], save[kSaved], through(0.0f);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      of_h[g] = V(in.sums[g].get(0));
      of_x[g] = V(0.0f);
      if constexpr (DenseCell::split) of_x[g] = V(in.wx[g].get(0) + weights.bias_ih[g]);
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) prev[k] = V(reset ? 0.0f : in.before[k]);
    if constexpr (DenseCell::two_phases) {
      V operand, doperand(0.0f);
      Cell::forward_first(of_x, of_h, prev, operand, save);
      Cell::forward_second(of_x, of_h, prev, next, save);
      Cell::backward_second(save, prev, dnext, d.dwx, d.drh, d.dprev);
#pragma unroll
      for (int g = kFirst; g < kGates; ++g) doperand = MulAdd(V(weights.recurrent[g]), d.drh[g], doperand);
      Cell::backward_first(save, prev, doperand, d.dwx, d.drh, d.dprev);
      d.operand = ValueOf(operand);
    } else {
      DenseCell::forward<Cell>(of_x, of_h, prev, weights.learnt, next, save);
      DenseCell::backward<Cell>(save, prev, weights.learnt, dnext, d.dlearnt, d.dwx, d.drh, d.dprev);
      d.operand = 0.0f;
    }
#pragma unroll
    for (int g = 0; g < kFirst; ++g) through = MulAdd(V(weights.recurrent[g]), d.drh[g], through);
    d.dprev[0] = d.dprev[0] + through;
  }

  template <class V>
  __device__ __forceinline__ void write(int step, const Inputs& in, bool reset, const Gradients<V>& d) {
    const float entered = reset ? 0.0f : in.before[0];
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      StoreOne(piece.line(call.dwx, g, call.hidden, kBytes).at(step), ValueOf(d.dwx[g]));
      const float factor = g < kFirst ? entered : d.operand;
      some.recurrent[g] = __fmaf_rn(ValueOf(d.drh[g]), factor, some.recurrent[g]);
      some.bias_ih[g] += ValueOf(d.dwx[g]);
      some.bias_hh[g] += ValueOf(d.drh[g]);
    }
#pragma unroll
    for (int k = 0; k < Learnt::count; ++k) some.learnt.of[k] += ValueOf(d.dlearnt[k]);
  }

  /// Loads the inputs of kAhead steps down to the piece's first.
  __device__ __forceinline__ void load_some(int last, Inputs (&in)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (last - k >= piece.begin) load(last - k, in[k]);
    }
  }

  /// Runs the piece from its end; `carry` are the gradients of the states that leave it, then of those that enter it.
  /// Values of the next steps are asked for all at once: there are too many for the chip to tell apart which have come.
  template <class V>
  __device__ __forceinline__ void run(V (&carry)[kStates]) {
    Inputs now[kAhead], next[kAhead];
    load_some(piece.end - 1, now);
    for (int base = piece.end - 1; base >= piece.begin; base -= kAhead) {
      load_some(base - kAhead, next);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int step = base - k;
        if (step < piece.begin) break;
        const bool reset = ResetsAt(call.rows, piece.row, step);
        V dnext[kStates];
        dnext[0] = carry[0] + V(now[k].dy.get(0));
#pragma unroll
        for (int s = 1; s < kStates; ++s) dnext[s] = carry[s] + V(now[k].dothers[s]);
        Gradients<V> d;
        differentiate<Rule>(now[k], reset, dnext, d);
        if constexpr (!kSummary) write(step, now[k], reset, d);
#pragma unroll
        for (int s = 0; s < kStates; ++s) carry[s] = reset ? V(0.0f) : d.dprev[s];
        if constexpr (kClip) carry[0] = V(Clipped(ValueOf(carry[0]), call.clip));
      }
      all.add(some);
      some.clear();
#pragma unroll
      for (int k = 0; k < kAhead; ++k) now[k] = next[k];
    }
  }
};

PENSTOCK_DEVICE void Summarise(const DenseDiagonalBackwardArguments& args, const Piece& p) {
  Dual carry[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) Enter(carry[k], 0.0f, k);
  Backward(args.call, p).run(carry);
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    args.carry[p.in<kStates>(k)] = carry[k].value.value;
#pragma unroll
    for (int j = 0; j < kStates; ++j) args.gain[p.in<kStates * kStates>(k * kStates + j)] = carry[k].slope[j].value;
  }
}

/// A piece's share of a gradient, where somebody wants it.
PENSTOCK_DEVICE void Tell(float* shares, Index at, float value) {
  if (shares != nullptr) shares[at] = value;
}

PENSTOCK_DEVICE void RunPiece(const DenseDiagonalBackwardArguments& args, const Piece& p) {
  const DenseBackwardArguments& call = args.call;
  Real carry[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    if (args.carry != nullptr) {
      carry[k] = Real(args.carry[p.in<kStates>(k)]);
    } else {
      carry[k] = Real(call.dstate_out != nullptr ? call.dstate_out[k * p.chains + p.chain] : 0.0f);
    }
  }
  Backward backward(call, p);
  backward.run(carry);
  if (p.number == 0 && call.dstate_in != nullptr) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) call.dstate_in[k * p.chains + p.chain] = carry[k].value;
  }
  const Index row = (Index)p.number * call.rows.rows + p.row.number, width = (Index)kGates * call.hidden;
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    const Index of_bias = row * width + (Index)g * call.hidden + p.channel;
    Tell(args.dweight, row * width + (Index)p.channel * kGates + g, backward.all.recurrent[g]);
    Tell(args.dbias_ih, of_bias, backward.all.bias_ih[g]);
    Tell(args.dbias_hh, of_bias, backward.all.bias_hh[g]);
  }
#pragma unroll
  for (int k = 0; k < Learnt::count; ++k) {
    Tell(args.dlearnt, (row * Learnt::count + k) * call.hidden + p.channel, backward.all.learnt.of[k]);
  }
  if (p.number == args.pieces - 1) p.clear_padding(call.dwx, kGates, call.hidden, kBytes);
}

// With learnt vectors the compiler would else spill registers so that one block more runs at once.
extern "C" __global__ void __launch_bounds__(kThreads, Learnt::count > 0 ? 1 : 0)
    DenseDiagonalBackward(const __grid_constant__ DenseDiagonalBackwardArguments args) {
  const Piece p = Piece::here(args.call.rows, args.call.hidden, args.piece_steps);
  if (p.number >= args.pieces || p.row.number < 0) return;
  if constexpr (kSummary) {
    Summarise(args, p);
  } else {
    RunPiece(args, p);
  }
}
