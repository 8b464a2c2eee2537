// Recurrences whose matrices are diagonal: every unit is a head by itself. A thread has one unit of one row, a *chain*,
// or a piece of its steps: states stay in registers, and nothing passes between threads.
//
// Values of a step are read kAhead steps or more before they are used, so that no step waits for memory.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(DiagonalPass)

#include "backend/cuda/kernels/dense/unit.cuh"

constexpr int kAhead = kPass.ahead, kThreads = kPass.threads, kFirst = DenseCell::first_gates;
constexpr bool kEveryState = kPass.every_state;

/// A value and its derivatives by the kStates states that entered a piece: with it the text of a cell says how what
/// leaves the piece changes with what enters it.
struct Dual {
  Real value, slope[kStates];
  Dual() = default;
  PENSTOCK_CELL explicit Dual(float of) : value(of) {
    for (int k = 0; k < kStates; ++k) slope[k] = Real(0.0f);
  }
};

/// A value whose derivatives are those of x times `by`.
PENSTOCK_CELL Dual Chained(Real value, const Dual& x, Real by) {
  Dual y;
  y.value = value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = x.slope[k] * by;
  return y;
}
PENSTOCK_CELL Dual operator+(const Dual& a, const Dual& b) {
  Dual y;
  y.value = a.value + b.value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = a.slope[k] + b.slope[k];
  return y;
}
PENSTOCK_CELL Dual operator-(const Dual& a, const Dual& b) {
  Dual y;
  y.value = a.value - b.value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = a.slope[k] - b.slope[k];
  return y;
}
PENSTOCK_CELL Dual operator*(const Dual& a, const Dual& b) {
  Dual y;
  y.value = a.value * b.value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = MulAdd(a.slope[k], b.value, a.value * b.slope[k]);
  return y;
}
PENSTOCK_CELL Dual operator/(const Dual& a, const Dual& b) {
  Dual y;
  y.value = a.value / b.value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = (a.slope[k] - y.value * b.slope[k]) / b.value;
  return y;
}
PENSTOCK_CELL Dual MulAdd(const Dual& a, const Dual& b, const Dual& c) {
  Dual y;
  y.value = MulAdd(a.value, b.value, c.value);
  for (int k = 0; k < kStates; ++k) {
    y.slope[k] = MulAdd(a.slope[k], b.value, MulAdd(a.value, b.slope[k], c.slope[k]));
  }
  return y;
}
PENSTOCK_CELL Dual Either(bool first, const Dual& a, const Dual& b) {
  Dual y;
  y.value = first ? a.value : b.value;
  for (int k = 0; k < kStates; ++k) y.slope[k] = first ? a.slope[k] : b.slope[k];
  return y;
}
PENSTOCK_CELL Dual Max(const Dual& a, const Dual& b) {
  Dual y = Either(a.value.value >= b.value.value, a, b);
  y.value = Max(a.value, b.value);
  return y;
}
PENSTOCK_CELL Dual SelectPositive(const Dual& x, const Dual& a, const Dual& b) {
  return Either(x.value.value >= 0.0f, a, b);
}
PENSTOCK_CELL Dual SelectZero(const Dual& x, const Dual& a, const Dual& b) {
  return Either(x.value.value == 0.0f, a, b);
}
PENSTOCK_CELL Dual Exp(const Dual& x) {
  const Real y = Exp(x.value);
  return Chained(y, x, y);
}
PENSTOCK_CELL Dual Tanh(const Dual& x) {
  const Real y = Tanh(x.value);
  return Chained(y, x, Real(1.0f) - y * y);
}
PENSTOCK_CELL Dual Sigmoid(const Dual& x) {
  const Real y = Sigmoid(x.value);
  return Chained(y, x, y * (Real(1.0f) - y));
}
PENSTOCK_CELL Dual Softplus(const Dual& x) { return Chained(Softplus(x.value), x, Sigmoid(x.value)); }

#include "backend/cuda/kernels/dense/dual_functions.cuh"

PENSTOCK_CELL float ValueOf(Real x) { return x.value; }
PENSTOCK_CELL float ValueOf(const Dual& x) { return x.value.value; }
/// The k-th of the states, or of their gradients, that enter a piece.
PENSTOCK_CELL void Enter(Real& state, float value, int) { state = Real(value); }
PENSTOCK_CELL void Enter(Dual& state, float value, int k) {
  state = Dual(value);
  state.slope[k] = Real(1.0f);
}

/// One tensor's values of a chain: at step n they are n strides further.
struct Line {
  char* first;
  Index stride;  // bytes
  __device__ __forceinline__ char* at(int step) const { return first + step * stride; }
};

/// The piece of a chain that a thread runs.
struct Piece {
  Row row;
  int channel;          // of H
  int number;           // of the piece
  int begin, end;       // steps, counted from where the recurrence starts
  Index chain, chains;  // row * H + unit, and how many there are

  PENSTOCK_DEVICE Piece here(const DenseRows& rows, int hidden, int piece_steps) {
    const Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
    Piece p;
    p.chains = (Index)rows.rows * hidden;
    p.number = (int)(at / p.chains);
    const Index of_piece = at % p.chains;
    p.row = Row::of_slot(rows, (int)(of_piece / hidden), kDescending);
    p.channel = (int)(of_piece % hidden);
    p.chain = (Index)p.row.number * hidden + p.channel;
    p.begin = min(p.number * piece_steps, p.row.length);
    p.end = min(p.begin + piece_steps, p.row.length);
    return p;
  }
  /// Returns an index in [pieces, kOf, B, H].
  template <int kOf>
  __device__ __forceinline__ Index in(int k) const {
    return ((Index)number * kOf + k) * chains + chain;
  }
  __device__ __forceinline__ Line line(const DenseTensor& tensor, int value, int hidden, int bytes) const {
    const Index stride = kDescending ? -tensor.step_stride : tensor.step_stride;
    return {row.at(tensor, 0, kDescending) + ((Index)value * hidden + channel) * bytes, stride};
  }
  /// Writes zeros to `values` values of a tensor where the row has memory but no step.
  __device__ __forceinline__ void clear_padding(const DenseTensor& tensor, int values, int hidden, int bytes) const {
    if (tensor.data == nullptr) return;
    for (int step = row.length; step < row.padded; ++step) {
      for (int v = 0; v < values; ++v) {
        char* const p = row.at(tensor, step, kDescending) + ((Index)v * hidden + channel) * bytes;
        if (bytes == 4) {
          *(float*)p = 0.0f;
        } else {
          *(unsigned short*)p = 0;
        }
      }
    }
  }
};

/// A unit's recurrent weights, biases and learnt vectors.
struct UnitWeights {
  float recurrent[kGates], bias_ih[kGates];
  Learnt learnt;

  __device__ __forceinline__ UnitWeights(const char* matrix, const float* input_bias, const float* vectors, int hidden,
                                         int channel) {
    learnt.read(vectors, hidden, channel);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      recurrent[g] = LoadOne(matrix + ((Index)channel * kGates + g) * kBytes);
      bias_ih[g] = BiasAt(input_bias, g, hidden, channel);
    }
  }
};
