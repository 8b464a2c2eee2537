#include "backend/cuda/dense/loop.h"

#include <algorithm>

#include "backend/cuda/dense/runnable.h"
#include "backend/cuda/dense/source.h"
#include "backend/cuda/driver/driver.h"
#include "base/check.h"
#include "base/parallel_tasks.h"
#include "plan/cell_table.h"

namespace penstock::cuda {

using namespace fill;  // NOLINT(google-build-using-namespace): one file's worth of a header

DenseLoop::DenseLoop(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan)
    : plan_(plan), kernel_(&Kernel::load(device, dense_source(problem, plan))), launch_(dense_launch(plan)) {
  require_clusters(device, *kernel_, plan_);
  if (takes_the_chip(plan_)) chip_.emplace(device, problem, plan_);
}

DenseLoops::DenseLoops(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                       const std::vector<Index>& stage_rows)
    : state_bytes_(static_cast<std::size_t>(plan::cell_traits(problem.cell).states() * problem.rows * problem.hidden *
                                            Index{sizeof(float)})) {
  std::vector<Index> counts = {problem.rows};
  if (problem.sorted && plan::shares_a_matrix(plan)) {
    counts = stage_rows.empty() ? plan::rows_worth_a_plan(problem, device.model()) : stage_rows;
  }
  std::vector<std::optional<DenseLoop>> loops(counts.size());
  side_by_side(counts.size(), [&](std::size_t i) {
    plan::GpuDenseProblem left = problem;
    left.rows = counts[i];
    loops[i].emplace(device, left, i == 0 ? plan : runnable_plan(device, left));
  });
  for (std::size_t i = 0; i < counts.size(); ++i) {
    loops_.push_back(*std::move(loops[i]));
    counts_.push_back({counts[i], loops_.back().plan().microseconds / static_cast<double>(problem.steps)});
  }
  if (stage_rows.empty()) return;
  stage_microseconds_ = 0;
  for (plan::SortedPlan& count : counts_) count.step_microseconds = static_cast<double>(count.rows);
}

std::size_t DenseLoops::loop_bytes() const {
  std::size_t bytes = 0;
  for (const DenseLoop& loop : loops_) bytes = std::max(bytes, loop.workspace_bytes());
  return bytes;
}

std::vector<plan::SortedStage> DenseLoops::stages_of(const DenseBatch& batch) const {
  if (loops_.size() == 1) return {};
  require(static_cast<Index>(batch.sizes.size()) == batch.longest && batch.sizes.front() == batch.rows,
          "the sizes of a batch must be those of the {} steps of its longest row, the first {}", batch.longest,
          batch.rows);
  std::vector<plan::SortedStage> stages = plan::sorted_stages(counts_, batch.sizes, stage_microseconds_);
  if (stages.size() == 1) stages.clear();
  return stages;
}

namespace {

DeviceAddress address_of(const float* memory) { return reinterpret_cast<DeviceAddress>(memory); }

template <class Arguments>
Arguments of_stage(Arguments arguments, const plan::SortedStage& stage) {
  arguments.rows.begin = static_cast<int>(stage.begin);
  arguments.rows.most = static_cast<int>(stage.steps);
  return arguments;
}

}  // namespace

void DenseLoops::run(DenseForwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
                     StreamHandle stream) const {
  const std::vector<plan::SortedStage> stages = stages_of(batch);
  if (stages.empty()) return of_all().run(arguments, workspace, stream);
  // Some blocks of a stage may be done while others still read what entered it, so that lies apart from what leaves.
  const DeviceAddress entering = workspace + loop_bytes(), leaving = entering + padded(state_bytes_);
  if (arguments.state_out == nullptr) arguments.state_out = device_pointer<float>(leaving);
  for (const plan::SortedStage& stage : stages) {
    if (stage.begin > 0) {
      check(driver().copy_on_device(entering, address_of(arguments.state_out), state_bytes_, stream),
            "copying states between stages");
      arguments.state_in = device_pointer<const float>(entering);
    }
    loops_[stage.plan].run(of_stage(arguments, stage), workspace, stream);
  }
}

void DenseLoops::run(DenseBackwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
                     StreamHandle stream) const {
  std::vector<plan::SortedStage> stages = stages_of(batch);
  if (stages.empty()) return of_all().run(arguments, workspace, stream);
  // Rows that have ended wait there until the loop comes to their last step. What enters a stage is read by the thread
  // that writes what leaves it.
  const DeviceAddress carry = workspace + loop_bytes();
  check(arguments.dstate_out == nullptr
            ? driver().fill_bytes(carry, 0, state_bytes_, stream)
            : driver().copy_on_device(carry, address_of(arguments.dstate_out), state_bytes_, stream),
        "carrying gradients of states between stages");
  float* const dstate_in = arguments.dstate_in;
  arguments.dstate_out = device_pointer<const float>(carry);
  std::ranges::reverse(stages);
  for (const plan::SortedStage& stage : stages) {
    arguments.dstate_in = stage.begin > 0 ? device_pointer<float>(carry) : dstate_in;
    loops_[stage.plan].run(of_stage(arguments, stage), workspace, stream);
  }
}

}  // namespace penstock::cuda
