#include <algorithm>

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/dense/fill.h"
#include "backend/cuda/dense/head.h"
#include "backend/cuda/dense/runnable.h"
#include "backend/cuda/dense/source.h"
#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

RowOrder::RowOrder(Device& device, const DenseBatch& batch) {
  constexpr Index most = 1 << 20;  // each row is compared with every other one
  if (!batch.ragged() || batch.rows < 2 || batch.rows > most) return;
  rows_ = batch.rows;
  kernel_ = &Kernel::load(device, sort_rows_source());
}

std::size_t RowOrder::workspace_bytes() const { return static_cast<std::size_t>((4 * rows_ + 255) / 256 * 256); }

DeviceAddress RowOrder::run(const DenseBatch& batch, DeviceAddress workspace, StreamHandle stream) const {
  if (kernel_ == nullptr) return 0;
  SortRowsArguments arguments{};
  arguments.lengths = device_pointer<const long long>(batch.lengths);
  arguments.cu_seqlens = device_pointer<const long long>(batch.cu_seqlens);
  arguments.order = device_pointer<int>(workspace);
  arguments.rows = static_cast<int>(rows_);
  kernel_->launch(static_cast<unsigned>((rows_ + kSortThreads - 1) / kSortThreads), kSortThreads, arguments, stream);
  return workspace;
}

RowOrder row_order(Device& device, const DenseBatch& batch, const plan::GpuDensePlan& plan) {
  return plan.algorithm == plan::DenseAlgorithm::step ? RowOrder() : RowOrder(device, batch);
}

DenseForwardExecutable::DenseForwardExecutable(Device& device, const DenseSpec& spec, const DenseForward& call)
    : DenseForwardExecutable(device, spec, call, runnable_plan(device, problem_of(call, spec))) {}

DenseForwardExecutable::DenseForwardExecutable(Device& device, const DenseSpec& spec, const DenseForward& call,
                                               const plan::GpuDensePlan& plan)
    : spec_(spec), problem_(problem_of(call, spec)), plan_(plan), order_(row_order(device, call.batch, plan)) {
  if (plan_.algorithm == plan::DenseAlgorithm::step) {
    steps_.emplace(device, problem_, plan_);
  } else if (plan_.algorithm == plan::DenseAlgorithm::diagonal) {
    diagonal_.emplace(device, problem_, plan_);
  } else {
    loops_.emplace(device, problem_, plan_, spec_.stage_rows);
  }
}

std::size_t DenseForwardExecutable::workspace_bytes() const {
  return order_.workspace_bytes() + (steps_      ? steps_->workspace_bytes()
                                     : diagonal_ ? diagonal_->workspace_bytes()
                                                 : loops_->workspace_bytes());
}

void DenseForwardExecutable::run(const DenseForward& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range("penstock dense forward");
  const plan::GpuDenseProblem problem = problem_of(call, spec_);
  require(can_run(problem_, problem),
          "the call must have the {} rows and the alignment of {} bytes that were prepared, and lengths, resets, a "
          "tape and every state or none as there",
          problem_.rows, problem_.alignment);
  const Index size = plan::size_of(spec_.storage);
  DenseForwardArguments arguments{};
  arguments.rows = dense_rows(call.batch, order_.run(call.batch, workspace, stream));
  arguments.wx = dense_tensor(call.wx, size);
  arguments.y = dense_tensor(call.y, size);
  arguments.recurrent = device_pointer<const char>(call.weights.recurrent);
  arguments.bias_ih = device_pointer<const float>(call.weights.bias_ih);
  arguments.bias_hh = device_pointer<const float>(call.weights.bias_hh);
  arguments.learnt = device_pointer<const float>(learnt_of(call.weights, spec_.cell, spec_.hidden));
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.state_out = device_pointer<float>(call.state_out);
  arguments.sums = tape_tensor(call.tape.sums, call.batch, gate_pitch(spec_) * size);
  arguments.states = tape_tensor(call.tape.states, call.batch,
                                 taped_floats(plan::cell_traits(spec_.cell), spec_.hidden, spec_.heads) * 4);
  arguments.every_state = dense_tensor(call.every_state, 4);
  arguments.hidden = static_cast<int>(spec_.hidden), arguments.heads = static_cast<int>(spec_.heads);
  arguments.slices = static_cast<int>(plan_.slices);
  const DeviceAddress loop = workspace + order_.workspace_bytes();
  if (steps_) return steps_->run(arguments, problem.steps, loop, stream);
  if (diagonal_) return diagonal_->run(arguments, problem.steps, loop, stream);
  loops_->run(arguments, call.batch, loop, stream);
}

}  // namespace penstock::cuda
