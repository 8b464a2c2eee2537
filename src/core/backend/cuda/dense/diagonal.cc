#include "backend/cuda/dense/diagonal.h"

#include "backend/cuda/product/matrix_product.h"
#include "backend/cuda/product/sum_splits.h"
#include "base/parallel_tasks.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

namespace {

/// Threads of a block that goes from piece to piece: few, so that the chains are spread over many multiprocessors.
constexpr int kJoinThreads = 32;

Index piece_steps(Index steps, Index pieces) { return (steps + pieces - 1) / pieces; }

}  // namespace

KernelSource dense_diagonal_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                                   DiagonalPart part) {
  if (part == DiagonalPart::between) {
    const int states = plan::cell_traits(problem.cell).states();
    KernelSource source;
    source.entry = problem.backward ? "DenseDiagonalPass" : "DenseDiagonalJoin";
    source.file = problem.backward ? "backend/cuda/kernels/dense/diagonal_pass.cuh"
                                   : "backend/cuda/kernels/dense/diagonal_join.cuh";
    source.plan = plan.explain();
    const given::DiagonalJoin join = {.states = states, .threads = kJoinThreads, .batch = plan::diagonal_batch(states)};
    source.constants = {pass_constant("DiagonalJoin", join)};
    return source;
  }
  given::DiagonalPass pass = {.all = dense_pass(problem),
                              .training = problem.training,
                              .every_state = problem.every_state,
                              .ahead = plan.stages,
                              .threads = plan.threads()};
  if (problem.backward) {
    pass.summary = part == DiagonalPart::pieces;
  } else {
    pass.pieces = part != DiagonalPart::chains, pass.exact = part == DiagonalPart::exact;
  }
  return pass_source(problem, plan, "diagonal", pass_constant("DiagonalPass", pass));
}

DiagonalPass::DiagonalPass(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                           const std::vector<DiagonalPart>& parts)
    : problem_(problem), plan_(plan), kernels_(parts.size()) {
  side_by_side(parts.size(), [&](std::size_t i) {
    kernels_[i] = &Kernel::load(device, dense_diagonal_source(problem, plan, parts[i]));
  });
}

Launch DiagonalPass::launch(Index pieces) const { return launch_of(chains() * pieces, plan_.threads()); }

Launch DiagonalPass::join_launch() const { return launch_of(chains(), kJoinThreads); }

Launch DiagonalPass::launch_of(Index threads, Index of_block) {
  return {.grid = static_cast<unsigned>((threads + of_block - 1) / of_block), .block = static_cast<unsigned>(of_block)};
}

DiagonalForward::DiagonalForward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : DiagonalPass(device, problem, plan,
                   plan.pieces == 1 ? std::vector{DiagonalPart::chains}
                                    : std::vector{DiagonalPart::pieces, DiagonalPart::between, DiagonalPart::exact}) {}

DiagonalForward::Places DiagonalForward::places() const {
  Places at{};
  if (plan_.pieces == 1) return at;
  const auto of_pieces = [&](Index values) { return static_cast<std::size_t>(4 * plan_.pieces * values * chains()); };
  at.leaving = at.entering + padded(of_pieces(states()));
  at.jacobian = at.leaving + padded(of_pieces(states()));
  at.iterations = at.jacobian + padded(of_pieces(states() * states()));
  at.end = at.iterations + padded(static_cast<std::size_t>(4 * chains()));
  return at;
}

void DiagonalForward::run(const DenseForwardArguments& call, Index steps, DeviceAddress workspace,
                          StreamHandle stream) const {
  DenseDiagonalForwardArguments arguments{};
  arguments.call = call;
  arguments.pieces = 1;
  arguments.piece_steps = static_cast<int>(steps);
  if (plan_.pieces == 1) return kernels_.front()->launch(launch(1), arguments, stream);
  const Places at = places();
  arguments.entering = device_pointer<float>(workspace + at.entering);
  arguments.leaving = device_pointer<float>(workspace + at.leaving);
  arguments.jacobian = device_pointer<float>(workspace + at.jacobian);
  arguments.iterations = device_pointer<int>(workspace + at.iterations);
  DenseDiagonalForwardArguments of_pieces = arguments;
  of_pieces.pieces = static_cast<int>(plan_.pieces);
  of_pieces.piece_steps = static_cast<int>(piece_steps(steps, plan_.pieces));
  for (of_pieces.iteration = 1; of_pieces.iteration <= plan::diagonal_iterations; ++of_pieces.iteration) {
    kernels_[0]->launch(launch(plan_.pieces), of_pieces, stream);
    kernels_[1]->launch(join_launch(), of_pieces, stream);
  }
  kernels_[2]->launch(launch(1), arguments, stream);
}

DiagonalBackward::DiagonalBackward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : DiagonalPass(device, problem, plan,
                   plan.pieces == 1 ? std::vector{DiagonalPart::chains}
                                    : std::vector{DiagonalPart::chains, DiagonalPart::pieces, DiagonalPart::between}),
      sum_(&Kernel::load(device, sum_splits_source(plan.pieces * problem.rows))) {}

DiagonalBackward::Places DiagonalBackward::places() const {
  const auto of_pieces = [&](Index values) {
    return padded(static_cast<std::size_t>(4 * plan_.pieces * values * chains()));
  };
  const Index gates = plan::cell_traits(problem_.cell).gates();
  const bool cut = plan_.pieces > 1;
  Places at{};
  at.gain = at.carry + (cut ? of_pieces(states()) : 0);
  at.weight = at.gain + (cut ? of_pieces(states() * states()) : 0);
  at.bias_ih = at.weight + of_pieces(gates);
  at.bias_hh = at.bias_ih + of_pieces(gates);
  at.learnt = at.bias_hh + of_pieces(gates);
  at.end = at.learnt + of_pieces(plan::cell_traits(problem_.cell).learnt);
  return at;
}

void DiagonalBackward::add_up(DeviceAddress shares, DeviceAddress gradient, Index vectors, StreamHandle stream) const {
  if (gradient == 0 || vectors == 0) return;
  SumSplitsArguments arguments{};
  arguments.partial = device_pointer<const float>(shares);
  arguments.d = device_pointer<float>(gradient);
  arguments.m = vectors * problem_.hidden;
  arguments.n = arguments.d_stride = 1;
  arguments.splits = static_cast<int>(plan_.pieces * problem_.rows);
  run_sum_splits(*sum_, arguments, stream);
}

void DiagonalBackward::run(const DenseBackwardArguments& call, const DenseWeights& gradients, Index steps,
                           DeviceAddress workspace, StreamHandle stream) const {
  const Places at = places();
  DenseDiagonalBackwardArguments arguments{};
  arguments.call = call;
  arguments.pieces = static_cast<int>(plan_.pieces);
  arguments.piece_steps = static_cast<int>(piece_steps(steps, plan_.pieces));
  if (gradients.recurrent != 0) arguments.dweight = device_pointer<float>(workspace + at.weight);
  if (gradients.bias_ih != 0) arguments.dbias_ih = device_pointer<float>(workspace + at.bias_ih);
  if (gradients.bias_hh != 0) arguments.dbias_hh = device_pointer<float>(workspace + at.bias_hh);
  const plan::CellTraits& cell = plan::cell_traits(problem_.cell);
  const DeviceAddress learnt = learnt_of(gradients, problem_.cell, problem_.hidden);
  if (learnt != 0) arguments.dlearnt = device_pointer<float>(workspace + at.learnt);
  if (plan_.pieces > 1) {
    arguments.carry = device_pointer<float>(workspace + at.carry);
    arguments.gain = device_pointer<float>(workspace + at.gain);
    kernels_[1]->launch(launch(plan_.pieces), arguments, stream);
    kernels_[2]->launch(join_launch(), arguments, stream);
  }
  kernels_[0]->launch(launch(plan_.pieces), arguments, stream);
  add_up(workspace + at.weight, gradients.recurrent, cell.gates(), stream);
  add_up(workspace + at.bias_ih, gradients.bias_ih, cell.gates(), stream);
  add_up(workspace + at.bias_hh, gradients.bias_hh, cell.gates(), stream);
  add_up(workspace + at.learnt, learnt, cell.learnt, stream);
}

}  // namespace penstock::cuda
