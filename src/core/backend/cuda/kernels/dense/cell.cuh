// A dense cell as the kernels apply it: to one unit of one row at one step, all values in registers.
//
// The text of each kernel begins with Storage, Rule (the cell) and kPass, one of the structs in pass.h.

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/dense/pass.h"
#include "plan/kernels/dense_tape.h"

constexpr bool kTanhUnit = kPass.all.tanh_unit, kDescending = kPass.all.descending, kReset = kPass.all.reset,
               kRestarts = kPass.all.restarts, kClip = kPass.all.clip;

/// The chip's tanh: one instruction instead of five or six.
PENSTOCK_DEVICE float TanhOfUnit(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / (1 + 2^x), by the chip's own power and reciprocal.
PENSTOCK_DEVICE float InverseOfOneAndPower(float x) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
}

/// For halves: 1 - 2 / (1 + e^2x), whose error is absolute, and x - x^3 / 3 for x near 0. A chain half as long as that
/// of the function for floats.
PENSTOCK_DEVICE Real Tanh(Real x) {
  if constexpr (kTanhUnit) return Real(TanhOfUnit(x.value));
  if constexpr (Storage::bytes == 4) return Tanh<Real>(x);
  const float large = __fmaf_rn(InverseOfOneAndPower(2.88539008f * x.value), -2.0f, 1.0f);
  const float small = __fmaf_rn(x.value * x.value * -0.333333333f, x.value, x.value);
  return Real(fabsf(x.value) < 0.03f ? small : large);
}

PENSTOCK_DEVICE Real Sigmoid(Real x) {
  if constexpr (kTanhUnit) return Real(__fmaf_rn(TanhOfUnit(0.5f * x.value), 0.5f, 0.5f));
  if constexpr (Storage::bytes == 4) return Sigmoid<Real>(x);
  return Real(InverseOfOneAndPower(-1.44269504f * x.value));
}

/// Absolutely as good as a bfloat16's neighbours are apart, and far better: what it is added to is of the order of 1.
PENSTOCK_DEVICE Real Softplus(Real x) {
  if constexpr (!kTanhUnit) return Softplus<Real>(x);
  float power, log;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.44269504f * fabsf(x.value)));
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(1.0f + power));
  return Real(__fmaf_rn(log, 0.693147181f, fmaxf(x.value, 0.0f)));
}

/// Gates of the first phase of a cell.
template <class Cell, bool kTwoPhases>
struct FirstGates {
  static constexpr int count = Cell::gates;
};
template <class Cell>
struct FirstGates<Cell, true> {
  static constexpr int count = Cell::first_gates;
};

using Learnt = LearntValues<Rule>;

template <class V>
PENSTOCK_DEVICE void PutLearnt(const Learnt& learnt, V (&values)[Learnt::places]) {
  learnt.put(values);
}

struct MeanCounts {
  int count, means[kMostExchanges];
};
template <class Cell, bool kBackwardPass>
PENSTOCK_DEVICE constexpr MeanCounts CountMeans() {
  MeanCounts all = {};
  if constexpr (requires { Cell::forward_averages; }) {
    if constexpr (kBackwardPass) {
      for (const int means : Cell::backward_averages) all.means[all.count] = means, all.count += means > 0;
    } else {
      for (const int means : Cell::forward_averages) all.means[all.count++] = means;
    }
  }
  return all;
}

/// The exchanges of a pass: how many means each of them carries, and 16-byte pieces of these.
template <class Cell, bool kBackwardPass>
struct Exchanges {
  static constexpr MeanCounts of = CountMeans<Cell, kBackwardPass>();
  PENSTOCK_DEVICE constexpr int pieces(int exchange) { return (of.means[exchange] + 3) / 4; }
  /// Means, and pieces, of the exchanges before one.
  PENSTOCK_DEVICE constexpr int means_before(int exchange) {
    int sum = 0;
    for (int i = 0; i < exchange; ++i) sum += of.means[i];
    return sum;
  }
  PENSTOCK_DEVICE constexpr int pieces_before(int exchange) {
    int sum = 0;
    for (int i = 0; i < exchange; ++i) sum += pieces(i);
    return sum;
  }
  PENSTOCK_DEVICE constexpr int most_pieces() {
    int largest = 1;
    for (int i = 0; i < of.count; ++i) largest = pieces(i) > largest ? pieces(i) : largest;
    return largest;
  }
};

/// Means that the forward pass leaves on the tape of a step, for each row and head, and the floats that they take.
constexpr int kTapedMeans = Exchanges<Rule, false>::means_before(Exchanges<Rule, false>::of.count);
constexpr int kTapedFloats = TapedFloats(kTapedMeans);

/// Returns the address of the means of a row and head on the tape of a step: behind its states.
template <class Tensor, class Row>
PENSTOCK_DEVICE char* AddressOfMeans(const Tensor& states, const Row& row, int step, int hidden, int head) {
  return row.at(states, step, kDescending) + ((Index)(Rule::states - 1) * hidden + (Index)head * kTapedFloats) * 4;
}

struct DenseCell {
  static constexpr int G = Rule::gates, S = Rule::states, N = Rule::saved;
  /// True if R h enters the cell by itself and not only in a sum with W x.
  static constexpr bool split = Rule::split_gradients;
  static constexpr bool two_phases = Rule::phases == 2;
  static constexpr int first_gates = FirstGates<Rule, two_phases>::count;

  /// Returns the value of a gate that the tape keeps: the sum of both products or, for split cells, whose W x is still
  /// in memory, R h.
  PENSTOCK_DEVICE Real kept(Real wx, Real rh) { return split ? rh : wx + rh; }

  /// The cell of one phase, over a value V. `learnt`: as PutLearnt() takes them for V.
  template <class Cell, class V, class Vectors>
  PENSTOCK_DEVICE void forward(const V (&wx)[G], const V (&rh)[G], const V (&prev)[S], const Vectors& learnt,
                               V (&next)[S], V (&save)[N]) {
    if constexpr (Learnt::count > 0) {
      V vectors[Learnt::places];
      PutLearnt(learnt, vectors);
      Cell::forward(wx, rh, prev, vectors, next, save);
    } else {
      Cell::forward(wx, rh, prev, next, save);
    }
  }
  template <class Cell, class V, class Vectors>
  PENSTOCK_DEVICE void backward(const V (&save)[N], const V (&prev)[S], const Vectors& learnt, const V (&dnext)[S],
                                V (&dlearnt)[Learnt::places], V (&dwx)[G], V (&drh)[G], V (&dprev)[S]) {
    if constexpr (Learnt::count > 0) {
      V vectors[Learnt::places];
      PutLearnt(learnt, vectors);
      Cell::backward(save, prev, vectors, dnext, dlearnt, dwx, drh, dprev);
    } else {
      Cell::backward(save, prev, dnext, dwx, drh, dprev);
    }
  }

  /// A cell whose units read means over their head. `head`: as custom/cuda_text.h takes it.
  template <class Cell, class Head, class V, class Vectors>
  PENSTOCK_DEVICE void forward(Head& head, const V (&wx)[G], const V (&rh)[G], const V (&prev)[S],
                               const Vectors& learnt, V (&next)[S], V (&save)[N]) {
    if constexpr (Learnt::count > 0) {
      V vectors[Learnt::places];
      PutLearnt(learnt, vectors);
      Cell::forward(head, wx, rh, prev, vectors, next, save);
    } else {
      Cell::forward(head, wx, rh, prev, next, save);
    }
  }
  template <class Cell, class Head, class V, class Vectors>
  PENSTOCK_DEVICE void backward(Head& head, const V (&save)[N], const V (&prev)[S], const Vectors& learnt,
                                const V (&dnext)[S], V (&dlearnt)[Learnt::places], V (&dwx)[G], V (&drh)[G],
                                V (&dprev)[S]) {
    if constexpr (Learnt::count > 0) {
      V vectors[Learnt::places];
      PutLearnt(learnt, vectors);
      Cell::backward(head, save, prev, vectors, dnext, dlearnt, dwx, drh, dprev);
    } else {
      Cell::backward(head, save, prev, dnext, dwx, drh, dprev);
    }
  }
};

/// A gradient within -limit .. limit; what is no number stays so.
PENSTOCK_DEVICE float Clipped(float gradient, float limit) {
  if constexpr (!kClip) return gradient;
  return gradient > limit ? limit : gradient < -limit ? -limit : gradient;
}
