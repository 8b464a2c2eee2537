// Backward pass of dense cells, a launch a step: what flows through R comes from a matrix product before it.

#include "backend/cuda/kernels/dense/step.cuh"

/// Values of a step computed anew from the tape, and the gradients that enter it.
struct Inputs {
  Real wx[kGates], rh[kGates], prev[kStates], dnext[kStates];

  /// Returns the gradient that step `from` passes on to state k before it, or the one that enters behind the row's end.
  PENSTOCK_DEVICE float carried(const DenseStepBackwardArguments& args, const Place& p, int k, int from) {
    const Index at = (Index)k * args.call.rows.rows * args.call.hidden + p.state;
    if (args.is_first) return args.call.dstate_out != nullptr ? args.call.dstate_out[at] : 0.0f;
    if (k > 0) return args.carry[at];
    const float all = args.carry[at] + args.through[p.state];
    return from < p.row.length ? Clipped(all, args.call.clip) : all;
  }

  PENSTOCK_DEVICE Inputs of(const DenseStepBackwardArguments& args, const Place& p, bool reset) {
    const DenseBackwardArguments& call = args.call;
    const int step = args.step, hidden = call.hidden;
    Inputs in;
    for (int g = 0; g < kGates; ++g) {
      in.rh[g] = Real(LoadOne(p.at(call.sums, step, g, hidden)));
      in.wx[g] = Real(0.0f);
      if constexpr (DenseCell::split) {
        in.wx[g] = Real(LoadOne(p.at(call.wx, step, g, hidden)) + BiasAt(call.bias_ih, g, hidden, p.channel));
      }
    }
    float h = 0.0f;
    if (step > 0) {
      h = LoadOne(p.at(call.y, step - 1, 0, hidden));
    } else if (call.state_in != nullptr) {
      h = call.state_in[p.state];
    }
    in.prev[0] = Real(reset ? 0.0f : h);
    for (int k = 1; k < kStates; ++k) in.prev[k] = Real(*p.float_at(call.states, step, k - 1, hidden));
    for (int k = 0; k < kStates; ++k) in.dnext[k] = Real(carried(args, p, k, step + 1));
    for (int k = 1; k < kStates && call.dstates.data != nullptr; ++k) {
      in.dnext[k] = in.dnext[k] + Real(*p.float_at(call.dstates, step, k - 1, hidden));
    }
    if (call.dy.data != nullptr) in.dnext[0] = in.dnext[0] + Real(LoadOne(p.at(call.dy, step, 0, hidden)));
    return in;
  }
};

struct Gradients {
  Real dwx[kGates], drh[kGates], dprev[kStates];
};

/// `args.phase` 0 of a cell with two phases leaves out what waits for the operand's gradient.
template <class Cell>
PENSTOCK_DEVICE void Differentiate(const DenseStepBackwardArguments& args, const Place& p, const Inputs& in,
                                   Gradients& d, Real& operand) {
  Real save[kSaved], next[kStates];
  if constexpr (DenseCell::two_phases) {
    Cell::forward_first(in.wx, in.rh, in.prev, operand, save);
    Cell::forward_second(in.wx, in.rh, in.prev, next, save);
    Cell::backward_second(save, in.prev, in.dnext, d.dwx, d.drh, d.dprev);
    const Real doperand(args.phase == 1 ? args.doperand[p.state] : 0.0f);
    Cell::backward_first(save, in.prev, doperand, d.dwx, d.drh, d.dprev);
  } else {
    Learnt learnt, sums;
    learnt.read(args.call.learnt, args.call.hidden, p.channel);
    Real dlearnt[Learnt::places];
    DenseCell::forward<Cell>(in.wx, in.rh, in.prev, learnt, next, save);
    DenseCell::backward<Cell>(save, in.prev, learnt, in.dnext, dlearnt, d.dwx, d.drh, d.dprev);
    sums.clear();
    sums.add(dlearnt);
    if (p.writes) sums.add_to(args.call.dlearnt, p.row.number, args.call.hidden, p.channel);
  }
}

/// The same for a cell whose units read means over their head, which the forward pass has left on the tape.
template <class Cell>
PENSTOCK_DEVICE void DifferentiateWithMeans(const DenseStepBackwardArguments& args, const Place& p, const Inputs& in,
                                            Gradients& d) {
  const DenseBackwardArguments& call = args.call;
  Values wx[kGates], rh[kGates], prev[kStates], dnext[kStates], next[kStates], save[kSaved];
  Values dwx[kGates], drh[kGates], dprev[kStates], of_learnt[Learnt::places];
  ToValues(in.wx, wx), ToValues(in.rh, rh), ToValues(in.prev, prev), ToValues(in.dnext, dnext);
  Learnt learnt[1], sums;
  learnt[0].read(call.learnt, call.hidden, p.channel);
  const TapedMeans taped{{AddressOfMeans(call.states, p.row, args.step, call.hidden, p.head)}};
  DenseCell::forward<Cell>(taped, wx, rh, prev, learnt, next, save);
  StepMeans<true> means;
  DenseCell::backward<Cell>(means, save, prev, learnt, dnext, of_learnt, dwx, drh, dprev);
  FromValues(dwx, d.dwx), FromValues(drh, d.drh), FromValues(dprev, d.dprev);
  if (!p.writes) return;
  sums.clear();
  for (int k = 0; k < Learnt::count; ++k) sums.of[k] = of_learnt[k].of[0].value;
  sums.add_to(call.dlearnt, p.row.number, call.hidden, p.channel);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    DenseStepBackward(const __grid_constant__ DenseStepBackwardArguments args) {
  const DenseBackwardArguments& call = args.call;
  const int hidden = call.hidden, step = args.step;
  const Place p = Place::here(call.rows, hidden);
  if (!p.exists()) return;
  const Index of_state = (Index)call.rows.rows * hidden;
  if (step == kBeforeFirstStep) {
    for (int k = 0; k < kStates; ++k) call.dstate_in[k * of_state + p.state] = Inputs::carried(args, p, k, 0);
    return;
  }
  const bool live = step < p.row.length;
  const bool reset = p.resets(call.rows, step);
  Gradients d = {};
  Real operand(0.0f);
  if (live) {
    if constexpr (kMeans) {
      DifferentiateWithMeans<Rule>(args, p, Inputs::of(args, p, reset), d);
    } else {
      Differentiate<Rule>(args, p, Inputs::of(args, p, reset), d, operand);
    }
  } else {
    for (int k = 0; k < kStates; ++k) d.dprev[k] = Real(Inputs::carried(args, p, k, step + 1));
  }
  if (!p.writes) return;
  constexpr int last_phase = DenseCell::two_phases ? 1 : 0;
  const int begin = args.phase == last_phase ? 0 : DenseCell::first_gates;
  const int end = args.phase == last_phase ? DenseCell::first_gates : kGates;
  // A reset stops the flow of gradients.
  for (int g = 0; g < kGates; ++g) {
    if (g >= begin && g < end) StoreOne(args.gates + p.gate(g, hidden) * kBytes, reset ? 0.0f : d.drh[g].value);
  }
  if (args.phase != last_phase) return;
  for (int k = 0; k < kStates; ++k) args.carry[k * of_state + p.state] = reset ? 0.0f : d.dprev[k].value;
  if (step >= p.row.padded) return;
  for (int g = 0; g < kGates; ++g) {
    StoreOne(p.at(call.dwx, step, g, hidden), d.dwx[g].value);
    if constexpr (DenseCell::split) StoreOne(p.at(call.drh, step, g, hidden), d.drh[g].value);
  }
  if constexpr (DenseCell::two_phases) StoreOne(p.at(call.operand, step, 0, hidden), operand.value);
}
