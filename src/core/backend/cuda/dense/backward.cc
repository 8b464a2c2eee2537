#include <algorithm>

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/dense/fill.h"
#include "backend/cuda/dense/head.h"
#include "backend/cuda/dense/runnable.h"
#include "backend/cuda/dense/source.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {

namespace {

/// Returns whether the gradient of one state is the sum over all rows.
bool shares_restarts(const DenseBackward& call) { return call.drestarts != 0 && call.batch.restarts.row == 0; }

}  // namespace

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

DenseBackwardExecutable::DenseBackwardExecutable(Device& device, const DenseSpec& spec, const DenseBackward& call)
    : DenseBackwardExecutable(device, spec, call, runnable_plan(device, problem_of(call, spec))) {}

DenseBackwardExecutable::DenseBackwardExecutable(Device& device, const DenseSpec& spec, const DenseBackward& call,
                                                 const plan::GpuDensePlan& plan)
    : spec_(spec),
      problem_(problem_of(call, spec)),
      plan_(plan),
      order_(row_order(device, call.batch, plan)),
      positions_(call.batch.positions()),
      wants_weight_(call.gradients.recurrent != 0),
      two_phases_(plan::cell_traits(spec.cell).phases == 2) {
  if (plan_.algorithm == plan::DenseAlgorithm::step) {
    steps_.emplace(device, problem_, plan_);
  } else if (plan_.algorithm == plan::DenseAlgorithm::diagonal) {
    diagonal_.emplace(device, problem_, plan_);
    return;
  } else {
    loops_.emplace(device, problem_, plan_, spec_.stage_rows);
  }
  const Index size = plan::size_of(spec.storage);
  if (wants_weight_) {
    entering_vector_ = static_cast<int>(common_alignment(16, {spec.hidden * size, problem_.alignment}) / size);
    entering_kernel_ = &Kernel::load(device, entering_states_source(spec.storage, spec.reverse, entering_vector_));
    const DeviceAddress gates = call.drh != 0 ? call.drh : call.dwx;
    gradient_.emplace(device, spec, positions_, common_alignment(16, {static_cast<std::int64_t>(gates)}));
  }
  if (call.gradients.bias_ih != 0 || call.gradients.bias_hh != 0) {
    ColumnSums sums{.storage = spec.storage, .rows = call.batch.positions(), .stride = gate_pitch(spec)};
    sums.columns = plan::cell_traits(spec.cell).gates() * spec.hidden;
    sums.alignment = common_alignment(16, {problem_.alignment, sums.columns * size});
    bias_sums_.emplace(device, sums);
  }
  if (shares_restarts(call)) {
    restart_sums_.emplace(device, ColumnSums{.storage = plan::Storage::f32,
                                             .rows = problem_.rows,
                                             .columns = spec.hidden,
                                             .alignment = common_alignment(16, {spec.hidden * Index{sizeof(float)}})});
  }
  if (learnt_of(call.gradients, spec.cell, spec.hidden) != 0) {
    const Index columns = plan::cell_traits(spec.cell).learnt * spec.hidden;
    learnt_sums_.emplace(device, ColumnSums{.storage = plan::Storage::f32,
                                            .rows = problem_.rows,
                                            .columns = columns,
                                            .alignment = common_alignment(16, {columns * Index{sizeof(float)}})});
  }
}

std::size_t DenseBackwardExecutable::dlearnt_bytes() const {
  if (!learnt_sums_) return 0;
  const Index values = problem_.rows * plan::cell_traits(spec_.cell).learnt * spec_.hidden;
  return padded(static_cast<std::size_t>(values) * sizeof(float));
}

Index DenseBackwardExecutable::unit_bytes() const {
  return (gradient_ ? gradient_->unit_pitch() : spec_.hidden) * plan::size_of(spec_.storage);
}

std::size_t DenseBackwardExecutable::drestarts_bytes() const {
  if (!restart_sums_) return 0;
  return padded(static_cast<std::size_t>(plan::cell_traits(spec_.cell).states() * problem_.rows * spec_.hidden) *
                sizeof(float));
}

/// Where the loop adds the gradients of restarts, zeros at first: their own place or, for a state of all rows, a share
/// of each row.
void DenseBackwardExecutable::set_drestarts(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream,
                                            DenseBackwardArguments& arguments) const {
  const RestartStates& restarts = call.batch.restarts;
  if (call.drestarts == 0) return;
  const Index H = spec_.hidden, rows = problem_.rows, states = plan::cell_traits(spec_.cell).states();
  const DeviceAddress to = restart_sums_ ? workspace + places().drestarts : call.drestarts;
  const Index row = restart_sums_ ? H : restarts.row, state = restart_sums_ ? rows * H : restarts.state;
  for (Index k = 0; k < states; ++k) {
    const auto offset = static_cast<DeviceAddress>(k * state) * sizeof(float);
    check(driver().fill_bytes(to + offset, 0, static_cast<std::size_t>(rows * row) * sizeof(float), stream),
          "clearing gradients of states");
  }
  arguments.drestarts = device_pointer<float>(to);
  arguments.drestart_state = state, arguments.drestart_row = row;
}

std::size_t DenseBackwardExecutable::loop_bytes() const {
  return steps_ ? steps_->workspace_bytes() : diagonal_ ? diagonal_->workspace_bytes() : loops_->workspace_bytes();
}

DenseBackwardExecutable::Places DenseBackwardExecutable::places() const {
  const std::size_t matrix = padded(static_cast<std::size_t>(positions_ * unit_bytes()));
  Places at{};
  at.dlearnt = order_.workspace_bytes();
  at.drestarts = at.dlearnt + dlearnt_bytes();
  at.entering = at.drestarts + drestarts_bytes();
  at.operand = at.entering + (gradient_ ? matrix : 0);
  at.loop = at.operand + (two_phases_ && !diagonal_ ? matrix : 0);
  at.products = at.loop + loop_bytes();
  at.counters = at.products + (gradient_ ? gradient_->workspace_bytes() : 0);
  return at;
}

std::size_t DenseBackwardExecutable::scratch_bytes() const { return places().counters; }

std::size_t DenseBackwardExecutable::bias_counters_bytes() const {
  return bias_sums_ ? padded(bias_sums_->workspace_bytes()) : 0;
}

std::size_t DenseBackwardExecutable::counters_bytes() const {
  return bias_counters_bytes() + (learnt_sums_ ? padded(learnt_sums_->workspace_bytes()) : 0) +
         (restart_sums_ ? padded(restart_sums_->workspace_bytes()) : 0);
}

void DenseBackwardExecutable::run_loop(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream) const {
  const plan::GpuDenseProblem problem = problem_of(call, spec_);
  const DenseBatch& batch = call.batch;
  const bool whole = batch.tape_steps == 0;
  require(whole || plan_.algorithm == plan::DenseAlgorithm::head || plan_.algorithm == plan::DenseAlgorithm::cluster,
          "some steps of many are run by heads or clusters, not by {}", plan::to_string(plan_.algorithm));
  require(can_run(problem_, problem) && (whole ? batch.positions() : batch.rows * batch.tape_steps) == positions_,
          "the call must have the {} rows, {} positions and alignment of {} bytes that were prepared, and lengths, "
          "resets, gradients of every state and a limit of gradients or none as there",
          problem_.rows, positions_, problem_.alignment);
  const plan::CellTraits& cell = plan::cell_traits(spec_.cell);
  const Index size = plan::size_of(spec_.storage), H = spec_.hidden;
  const DeviceAddress order = order_.run(batch, workspace, stream);
  DenseBackwardArguments arguments{};
  arguments.rows = dense_rows(batch, order);
  arguments.wx = dense_tensor(call.wx, size);
  arguments.y = dense_tensor(call.y, size);
  arguments.dy = dense_tensor(call.dy, size);
  arguments.sums = tape_tensor(call.tape.sums, batch, gate_pitch(spec_) * size);
  arguments.states = tape_tensor(call.tape.states, batch, taped_floats(cell, H, spec_.heads) * 4);
  arguments.dwx = tape_tensor(call.dwx, batch, gate_pitch(spec_) * size);
  arguments.drh = tape_tensor(call.drh, batch, gate_pitch(spec_) * size);
  if (two_phases_ && !diagonal_) {
    const auto begin = static_cast<DeviceAddress>(batch.tape_position() * unit_bytes());
    arguments.operand = tape_tensor(workspace + places().operand + begin, batch, unit_bytes());
  }
  arguments.recurrent = device_pointer<const char>(call.weights.recurrent);
  arguments.bias_ih = device_pointer<const float>(call.weights.bias_ih);
  arguments.learnt = device_pointer<const float>(learnt_of(call.weights, spec_.cell, spec_.hidden));
  if (learnt_sums_) {
    // Loops over some of the steps add to what those before them have left.
    const bool first =
        whole || (spec_.reverse ? batch.tape_begin == 0 : batch.tape_begin + batch.steps == batch.tape_steps);
    const DeviceAddress dlearnt = workspace + places().dlearnt;
    if (first) check(driver().fill_bytes(dlearnt, 0, dlearnt_bytes(), stream), "clearing gradients of learnt vectors");
    arguments.dlearnt = device_pointer<float>(dlearnt);
  }
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.dstate_out = device_pointer<const float>(call.dstate_out);
  arguments.dstate_in = device_pointer<float>(call.dstate_in);
  arguments.dstates = dense_tensor(call.dstates, 4);
  set_drestarts(call, workspace, stream, arguments);
  arguments.clip = call.clip;
  arguments.hidden = static_cast<int>(H), arguments.heads = static_cast<int>(spec_.heads);
  arguments.slices = static_cast<int>(plan_.slices);
  const DeviceAddress loop = workspace + places().loop;
  if (steps_) return steps_->run(arguments, problem.steps, loop, stream);
  if (diagonal_) return diagonal_->run(arguments, call.gradients, problem.steps, loop, stream);
  loops_->run(arguments, batch, loop, stream);
}

void DenseBackwardExecutable::run_bias_sums(const DenseBackward& call, DeviceAddress sums, StreamHandle stream) const {
  const DeviceAddress of_x = call.gradients.bias_ih, of_h = call.gradients.bias_hh;
  const auto bytes = static_cast<std::size_t>(plan::cell_traits(spec_.cell).gates() * spec_.hidden * 4);
  if (call.drh != 0) {
    if (of_x != 0) bias_sums_->run(call.dwx, of_x, sums, stream);
    if (of_h != 0) bias_sums_->run(call.drh, of_h, sums, stream);
    return;
  }
  bias_sums_->run(call.dwx, of_x != 0 ? of_x : of_h, sums, stream);
  if (of_x != 0 && of_h != 0)
    check(driver().copy_on_device(of_h, of_x, bytes, stream), "copying the gradient of a bias");
}

void DenseBackwardExecutable::run(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range("penstock dense backward");
  run_loop(call, workspace, stream);
  run_products(call, workspace, workspace + scratch_bytes(), stream);
}

void DenseBackwardExecutable::run_products(const DenseBackward& call, DeviceAddress scratch, DeviceAddress counters,
                                           StreamHandle stream) const {
  if (diagonal_) return;
  if (bias_sums_) run_bias_sums(call, counters, stream);
  if (learnt_sums_) {
    const DeviceAddress sums = learnt_of(call.gradients, spec_.cell, spec_.hidden);
    require_address(sums, "the gradient of bias_ih");
    learnt_sums_->run(scratch + places().dlearnt, sums, counters + bias_counters_bytes(), stream);
  }
  if (restart_sums_ && call.drestarts != 0) {
    const DeviceAddress sums = counters + counters_bytes() - padded(restart_sums_->workspace_bytes());
    for (Index k = 0; k < plan::cell_traits(spec_.cell).states(); ++k) {
      const auto share = static_cast<DeviceAddress>(k * problem_.rows * spec_.hidden) * sizeof(float);
      const auto state = static_cast<DeviceAddress>(k * call.batch.restarts.state) * sizeof(float);
      restart_sums_->run(scratch + places().drestarts + share, call.drestarts + state, sums, stream);
    }
  }
  require((call.gradients.recurrent != 0) == wants_weight_, "the call must have {}, as prepared",
          wants_weight_ ? "a gradient of the recurrent matrix" : "no gradient of the recurrent matrix");
  if (!wants_weight_) return;
  constexpr Index most_blocks = 64;  // of a row
  const Places at = places();
  const Index size = plan::size_of(spec_.storage), H = spec_.hidden;
  EnteringArguments arguments{};
  arguments.rows = dense_rows(call.batch, 0);
  arguments.y = dense_tensor(call.y, size);
  arguments.entering = gapless_tensor(scratch + at.entering, call.batch, unit_bytes());
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.hidden = static_cast<int>(H);
  const Index accesses = problem_.steps * (H / entering_vector_);
  const Index blocks = std::clamp<Index>(accesses / kEnteringThreads, 1, most_blocks);
  entering_kernel_->launch(static_cast<unsigned>(blocks * call.batch.rows), kEnteringThreads, arguments, stream);
  gradient_->run(call.drh != 0 ? call.drh : call.dwx, scratch + at.entering, scratch + at.operand,
                 call.gradients.recurrent, scratch + at.products, stream);
}

}  // namespace penstock::cuda
