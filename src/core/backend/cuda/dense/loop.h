#pragma once

#include <optional>
#include <vector>

#include "backend/cuda/dense/chip.h"
#include "backend/cuda/dense/dense.h"
#include "backend/cuda/driver/kernel.h"
#include "plan/gpu/sorted_rows.h"

namespace penstock::cuda {

/// The launches that run the steps of a pass over so many rows, by one plan that is no launch for every step.
class DenseLoop {
 public:
  DenseLoop(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  const plan::GpuDensePlan& plan() const { return plan_; }
  const Kernel& kernel() const { return *kernel_; }
  std::size_t workspace_bytes() const { return chip_ ? chip_->workspace_bytes() : 0; }
  template <class Arguments>  // of either pass
  void run(Arguments arguments, DeviceAddress workspace, StreamHandle stream) const {
    arguments.slices = static_cast<int>(plan_.slices);
    if (chip_) return chip_->run(arguments, workspace, stream);
    kernel_->launch(launch_, arguments, stream);
  }

 private:
  plan::GpuDensePlan plan_;
  const Kernel* kernel_;
  Launch launch_;
  std::optional<ChipLoop> chip_;
};

/// The loop over all rows, and where rows of decreasing length end one after the other, loops over those that are left:
/// a pass is then some stages, one after the other, between which states lie in memory.
class DenseLoops {
 public:
  /// `plan`: for all rows. `stage_rows`: as in DenseSpec.
  DenseLoops(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
             const std::vector<Index>& stage_rows);
  const DenseLoop& of_all() const { return loops_.front(); }
  std::size_t workspace_bytes() const { return loop_bytes() + (loops_.size() > 1 ? 2 * padded(state_bytes_) : 0); }
  void run(fill::DenseForwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
           StreamHandle stream) const;
  void run(fill::DenseBackwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
           StreamHandle stream) const;

 private:
  std::size_t loop_bytes() const;
  std::vector<plan::SortedStage> stages_of(const DenseBatch& batch) const;

  std::vector<DenseLoop> loops_;          // of decreasing numbers of rows
  std::vector<plan::SortedPlan> counts_;  // the numbers
  double stage_microseconds_ = plan::stage_microseconds;
  std::size_t state_bytes_;  // of float [S, B, H]
};

}  // namespace penstock::cuda
