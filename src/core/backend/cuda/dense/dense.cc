#include "backend/cuda/dense/dense.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <tuple>

#include "base/check.h"

namespace penstock::cuda {
namespace {

void check_spec(const DenseSpec& spec) {
  require(spec.hidden >= 1 && spec.heads >= 1 && spec.hidden % spec.heads == 0,
          "hidden must be at least 1 and heads must divide it, not {} and {}", spec.hidden, spec.heads);
  const plan::CellTraits& cell = plan::cell_traits(spec.cell);
  require_argument(!cell.info.scan, "cell", spec.cell, "a dense cell, with a recurrent matrix");
  require(gate_pitch(spec) >= cell.gates() * spec.hidden,
          "gate_pitch must be 0 or at least the {} values of all gates, not {}", cell.gates() * spec.hidden,
          spec.gate_pitch);
}

void check_batch(const DenseBatch& batch) {
  require(batch.rows >= 1 && batch.steps >= 1, "rows and steps must be at least 1, not {} and {}", batch.rows,
          batch.steps);
  require(batch.lengths == 0 || batch.cu_seqlens == 0, "lengths and cu_seqlens exclude each other");
  require_argument(batch.longest >= 0 && batch.longest <= batch.steps, "longest", batch.longest, "0 to {} (the steps)",
                   batch.steps);
}

struct AlignmentOf {
  plan::Storage storage;
  int all = 16;

  void add(DeviceAddress address) { all = std::min(all, common_alignment(16, {static_cast<std::int64_t>(address)})); }
  void add(std::string_view name, const DeviceSequence& sequence, const DenseBatch& batch, Index channels) {
    const Index bytes = plan::size_of(storage);
    require(sequence.data != 0, "{} must be an address on the GPU, not null", name);
    require(sequence.data % static_cast<DeviceAddress>(bytes) == 0, "{} must be aligned to its {} bytes a value", name,
            bytes);
    const auto apart = [&](Index stride, Index count) { return count < 2 || std::abs(stride) >= channels; };
    require(apart(sequence.step_stride, batch.steps), "the step stride of {} must be at least its {} channels, not {}",
            name, channels, sequence.step_stride);
    require(batch.cu_seqlens != 0 || apart(sequence.row_stride, batch.rows),
            "the row stride of {} must be at least its {} channels, not {}", name, channels, sequence.row_stride);
    constexpr Index limit = Index{1} << 46;  // more bytes than any device has
    require(std::abs(sequence.step_stride) < limit / batch.steps && std::abs(sequence.row_stride) < limit / batch.rows,
            "the strides of {} ({} and {}) reach beyond any memory", name, sequence.row_stride, sequence.step_stride);
    add(sequence.data);
    all = std::min(all, common_alignment(16, {sequence.step_stride * bytes,
                                              batch.cu_seqlens != 0 ? 0 : sequence.row_stride * bytes}));
  }
};

plan::GpuDenseProblem problem_of(const DenseSpec& spec, const DenseBatch& batch) {
  check_spec(spec);
  check_batch(batch);
  plan::GpuDenseProblem problem;
  problem.cell = spec.cell;
  problem.storage = spec.storage;
  problem.rows = batch.rows;
  problem.steps = batch.cu_seqlens != 0 && batch.longest > 0 ? batch.longest : batch.steps;
  problem.hidden = spec.hidden;
  problem.heads = spec.heads;
  problem.ragged = batch.ragged();
  problem.sorted = batch.sorted;
  problem.reset = batch.reset != 0, problem.restarts = batch.restarts.data != 0;
  problem.reverse = spec.reverse;
  problem.algorithm = spec.algorithm;
  problem.tf32 = spec.tf32;
  return problem;
}

/// Returns whether `states` is given, as a tensor of float states. Throws Error(invalid_argument) if it does not fit.
bool check_states(std::string_view name, const DeviceSequence& states, const DenseSpec& spec, const DenseBatch& batch) {
  if (states.data == 0) return false;
  const Index others = plan::cell_traits(spec.cell).states() - 1;
  require(others > 0, "{} must be null for {}, which has no state but its output", name, spec.cell);
  AlignmentOf{plan::Storage::f32}.add(name, states, batch, others * spec.hidden);
  return true;
}

void require_weights(const DenseWeights& weights, const DenseSpec& spec) {
  require_address(weights.recurrent, "the recurrent matrix");
  const int learnt = plan::cell_traits(spec.cell).learnt;
  require(learnt == 0 || weights.bias_ih != 0,
          "bias_ih must be an address on the GPU, not null: the {} learnt vectors of {} lie behind it", learnt,
          spec.cell);
}

AlignmentOf dense_alignment(const DenseSpec& spec) {
  AlignmentOf alignment{spec.storage};
  const Index size = plan::size_of(spec.storage);
  alignment.all = common_alignment(16, {spec.hidden / spec.heads * size, gate_pitch(spec) * size});
  return alignment;
}

}  // namespace

Index taped_floats(const plan::CellTraits& cell, Index hidden, Index heads) {
  return (cell.states() - 1) * hidden + heads * plan::taped_floats(cell);
}

Index gate_pitch(const DenseSpec& spec) {
  return spec.gate_pitch > 0 ? spec.gate_pitch : plan::cell_traits(spec.cell).gates() * spec.hidden;
}

DenseTapeBytes tape_bytes(const DenseSpec& spec, const DenseBatch& batch) {
  const Index positions = batch.positions();
  const Index floats = taped_floats(plan::cell_traits(spec.cell), spec.hidden, spec.heads);
  return {static_cast<std::size_t>(positions * gate_pitch(spec) * plan::size_of(spec.storage)),
          static_cast<std::size_t>(positions * floats * Index{sizeof(float)})};
}

namespace {

/// Moves what a pass reads and writes to some of its steps.
class StepsOf {
 public:
  StepsOf(const DenseSpec& spec, const DenseBatch& whole, Index begin, Index steps)
      : spec_(spec), cell_(plan::cell_traits(spec.cell)), batch_(whole), size_(plan::size_of(spec.storage)) {
    require(!whole.ragged() && whole.restarts.data == 0 && begin >= 0 && steps >= 1 && begin + steps <= whole.steps,
            "steps {} to {} must be among the {} of rows that have all of them", begin, begin + steps, whole.steps);
    batch_.tape_steps = whole.steps;
    batch_.tape_begin = begin;
    batch_.steps = steps;
    if (batch_.reset != 0) batch_.reset += static_cast<DeviceAddress>(begin * batch_.reset_step_stride);
  }

  void move(DeviceSequence& sequence) const { move(sequence, size_); }
  void move_states(DeviceSequence& sequence) const { move(sequence, Index{sizeof(float)}); }
  void move_gates(DeviceAddress& gates) const { move(gates, gate_pitch(spec_) * size_); }

  /// Fills the fields that both passes have.
  template <class Pass>
  Pass of(Pass part) const {
    part.batch = batch_;
    move(part.wx), move(part.y);
    move_gates(part.tape.sums);
    move(part.tape.states, taped_floats(cell_, spec_.hidden, spec_.heads) * Index{sizeof(float)});
    return part;
  }

 private:
  void move(DeviceSequence& sequence, Index bytes) const {
    if (sequence.data == 0) return;
    sequence.data += static_cast<DeviceAddress>(batch_.tape_begin * sequence.step_stride * bytes);
  }
  /// `bytes`: from position to position.
  void move(DeviceAddress& address, Index bytes) const {
    if (address != 0) address += static_cast<DeviceAddress>(batch_.tape_position() * bytes);
  }

  const DenseSpec& spec_;
  const plan::CellTraits& cell_;
  DenseBatch batch_;
  Index size_;
};

}  // namespace

DenseForward steps_of(const DenseForward& whole, const DenseSpec& spec, Index begin, Index steps) {
  const StepsOf chosen(spec, whole.batch, begin, steps);
  DenseForward part = chosen.of(whole);
  chosen.move_states(part.every_state);
  return part;
}

DenseBackward steps_of(const DenseBackward& whole, const DenseSpec& spec, Index begin, Index steps) {
  const StepsOf chosen(spec, whole.batch, begin, steps);
  DenseBackward part = chosen.of(whole);
  chosen.move(part.dy), chosen.move_states(part.dstates);
  chosen.move_gates(part.dwx), chosen.move_gates(part.drh);
  return part;
}

DeviceAddress learnt_of(const DenseWeights& weights, const std::string& cell, Index hidden) {
  const plan::CellTraits& traits = plan::cell_traits(cell);
  if (traits.learnt == 0 || weights.bias_ih == 0) return 0;
  return weights.bias_ih + static_cast<DeviceAddress>(traits.gates() * hidden) * sizeof(float);
}

given::DensePass dense_pass(const plan::GpuDenseProblem& problem) {
  return {.tanh_unit = problem.storage == plan::Storage::bf16,
          .descending = problem.reverse,
          .reset = problem.reset,
          .restarts = problem.restarts,
          .clip = problem.clipped};
}

given::HeldMatrix held_matrix(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return {.head = static_cast<int>(problem.head_size()),
          .access = problem.alignment,
          .training = problem.training,
          .every_state = problem.every_state,
          .shared_bytes = static_cast<int>(plan.shared)};
}

KernelSource pass_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                         const std::string& algorithm, Constant pass) {
  KernelSource source;
  const auto first = static_cast<char>(std::toupper(static_cast<unsigned char>(algorithm[0])));
  source.entry = fmt::format("Dense{}{}{}", first, algorithm.substr(1), problem.backward ? "Backward" : "Forward");
  source.file =
      fmt::format("backend/cuda/kernels/dense/{}_{}.cuh", algorithm, problem.backward ? "backward" : "forward");
  source.constants = {{"using Storage", problem.tf32 ? "Tf32" : storage_type(problem.storage)}, std::move(pass)};
  source.rule = plan::cell_traits(problem.cell).text;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

plan::GpuDenseProblem problem_of(const DenseForward& call, const DenseSpec& spec) {
  plan::GpuDenseProblem problem = problem_of(spec, call.batch);
  const plan::CellTraits& cell = plan::cell_traits(spec.cell);
  AlignmentOf alignment = dense_alignment(spec);
  alignment.add("wx", call.wx, call.batch, cell.gates() * spec.hidden);
  alignment.add("y", call.y, call.batch, spec.hidden);
  require_weights(call.weights, spec);
  alignment.add(call.weights.recurrent);
  problem.training = call.tape.sums != 0;
  problem.exact = spec.exact;
  alignment.add(call.tape.sums);
  require(!problem.training || call.tape.states != 0 || taped_floats(cell, spec.hidden, spec.heads) == 0,
          "the tape of {} needs states besides the sums, not null", spec.cell);
  require(call.tape.states % 16 == 0, "the states of the tape must be aligned to 16 bytes");
  problem.every_state = check_states("every_state", call.every_state, spec, call.batch);
  problem.alignment = alignment.all;
  return problem;
}

plan::GpuDenseProblem problem_of(const DenseBackward& call, const DenseSpec& spec) {
  plan::GpuDenseProblem problem = problem_of(spec, call.batch);
  const plan::CellTraits& cell = plan::cell_traits(spec.cell);
  const Index width = cell.gates() * spec.hidden;
  problem.backward = true;
  AlignmentOf alignment = dense_alignment(spec);
  if (cell.split_gradients) alignment.add("wx", call.wx, call.batch, width);
  alignment.add("y", call.y, call.batch, spec.hidden);
  if (call.dy.data != 0) alignment.add("dy", call.dy, call.batch, spec.hidden);
  require_weights(call.weights, spec);
  require_address(call.tape.sums, "the sums of the tape");
  require(call.tape.states != 0 || taped_floats(cell, spec.hidden, spec.heads) == 0,
          "the tape of {} needs states besides the sums, not null", spec.cell);
  require(call.tape.states % 16 == 0, "the states of the tape must be aligned to 16 bytes");
  require_address(call.dwx, "the gradient of wx");
  require((call.drh != 0) == cell.split_gradients, "the gradient of R h must be {}",
          cell.split_gradients ? "an address on the GPU" : "null, as that of wx is the same");
  problem.every_state = check_states("dstates", call.dstates, spec, call.batch);
  require_argument(call.clip >= 0, "clip", call.clip, "0 or greater");
  problem.clipped = call.clip > 0;
  alignment.add(call.tape.sums);
  alignment.add(call.dwx);
  alignment.add(call.drh);
  problem.alignment = alignment.all;
  return problem;
}

bool can_run(const plan::GpuDenseProblem& prepared, const plan::GpuDenseProblem& call) {
  const auto form = [](const plan::GpuDenseProblem& of) {
    return std::tie(of.rows, of.training, of.ragged, of.sorted, of.reset, of.restarts, of.clipped);
  };
  const bool without_gradients = prepared.backward && !call.every_state;
  return form(prepared) == form(call) && call.alignment >= prepared.alignment &&
         (call.every_state == prepared.every_state || without_gradients);
}

}  // namespace penstock::cuda
