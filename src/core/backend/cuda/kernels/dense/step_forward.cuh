// Forward pass of dense cells, a launch a step: R h comes from a matrix product before it. For recurrent matrices that
// no part of the chip can hold.

#include "backend/cuda/kernels/dense/step.cuh"

/// Returns state k before the step.
PENSTOCK_DEVICE float Before(const DenseStepForwardArguments& args, const Place& p, int k) {
  return args.before != nullptr ? args.before[(Index)k * args.call.rows.rows * args.call.hidden + p.state] : 0.0f;
}

PENSTOCK_DEVICE void WriteAfter(const DenseStepForwardArguments& args, const Place& p, int k, float value) {
  args.after[(Index)k * args.call.rows.rows * args.call.hidden + p.state] = value;
}

/// Writes the tape of a step for the backward pass.
PENSTOCK_DEVICE void Keep(const DenseForwardArguments& call, const Place& p, int step, const Real (&wx)[kGates],
                          const Real (&rh)[kGates], const Real (&prev)[kStates]) {
  if (call.sums.data == nullptr) return;
  for (int g = 0; g < kGates; ++g) {
    StoreOne(p.at(call.sums, step, g, call.hidden), DenseCell::kept(wx[g], rh[g]).value);
  }
  for (int k = 1; k < kStates; ++k) *p.float_at(call.states, step, k - 1, call.hidden) = prev[k].value;
}

/// The states but h after a step, where somebody wants them.
template <class State>
PENSTOCK_DEVICE void WriteStates(const DenseForwardArguments& call, const Place& p, int step, const State& state) {
  if (call.every_state.data == nullptr) return;
  for (int k = 1; k < kStates; ++k) *p.float_at(call.every_state, step, k - 1, call.hidden) = state(k);
}

template <class Cell>
PENSTOCK_DEVICE void ApplyCell(const Real (&wx)[kGates], const Real (&rh)[kGates], const Real (&prev)[kStates],
                               const Learnt& learnt, Real (&next)[kStates], Real& operand) {
  Real save[kSaved];
  if constexpr (DenseCell::two_phases) {
    Cell::forward_first(wx, rh, prev, operand, save);
    Cell::forward_second(wx, rh, prev, next, save);
  } else {
    DenseCell::forward<Cell>(wx, rh, prev, learnt, next, save);
  }
}

/// The same for a cell whose units read means over their head.
template <class Cell>
PENSTOCK_DEVICE void ApplyWithMeans(char* tape, const Real (&wx)[kGates], const Real (&rh)[kGates],
                                    const Real (&prev)[kStates], const Learnt& learnt, Real (&next)[kStates]) {
  Values x[kGates], h[kGates], before[kStates], after[kStates], save[kSaved];
  ToValues(wx, x), ToValues(rh, h), ToValues(prev, before);
  const Learnt vectors[1] = {learnt};
  StepMeans<false> means;
  DenseCell::forward<Cell>(means, x, h, before, vectors, after, save);
  if (tape != nullptr) means.kept.store(tape, (int)threadIdx.x);
  FromValues(after, next);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    DenseStepForward(const __grid_constant__ DenseStepForwardArguments args) {
  const DenseForwardArguments& call = args.call;
  const Place p = Place::here(call.rows, call.hidden);
  if (!p.exists()) return;  // with means, of all threads of the block
  const int step = args.step, last_phase = DenseCell::two_phases ? 1 : 0;
  if (step == kBeforeFirstStep) return StoreOne(args.operand + p.state * kBytes, Before(args, p, 0));
  if (step >= p.row.length) {
    if (args.phase != last_phase) return;
    for (int k = 0; k < kStates && args.before != args.after; ++k) WriteAfter(args, p, k, Before(args, p, k));
    if (step >= p.row.padded) return;
    StoreOne(p.at(call.y, step, 0, call.hidden), 0.0f);
    WriteStates(call, p, step, [](int) { return 0.0f; });
    return;
  }
  const bool reset = p.resets(call.rows, step);
  Real wx[kGates], rh[kGates], prev[kStates], next[kStates], operand;
  for (int g = 0; g < kGates; ++g) {
    const bool known = g < DenseCell::first_gates || args.phase == last_phase;
    const float product = reset || !known || args.products == nullptr ? 0.0f : args.products[p.gate(g, call.hidden)];
    wx[g] = Real(LoadOne(p.at(call.wx, step, g, call.hidden)) + BiasAt(call.bias_ih, g, call.hidden, p.channel));
    rh[g] = Real(product + BiasAt(call.bias_hh, g, call.hidden, p.channel));
  }
  for (int k = 0; k < kStates; ++k) prev[k] = Real(reset ? 0.0f : Before(args, p, k));
  Learnt learnt;
  learnt.read(call.learnt, call.hidden, p.channel);
  if constexpr (kMeans) {
    const bool keeps = call.sums.data != nullptr;
    char* const tape = keeps ? AddressOfMeans(call.states, p.row, step, call.hidden, p.head) : nullptr;
    ApplyWithMeans<Rule>(tape, wx, rh, prev, learnt, next);
  } else {
    ApplyCell<Rule>(wx, rh, prev, learnt, next, operand);
  }
  if (!p.writes) return;
  if (args.phase != last_phase) return StoreOne(args.operand + p.state * kBytes, operand.value);
  Keep(call, p, step, wx, rh, prev);
  for (int k = 0; k < kStates; ++k) WriteAfter(args, p, k, next[k].value);
  if (args.operand != nullptr) StoreOne(args.operand + p.state * kBytes, next[0].value);
  StoreOne(p.at(call.y, step, 0, call.hidden), next[0].value);
  WriteStates(call, p, step, [&](int k) { return next[k].value; });
}
