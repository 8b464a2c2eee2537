#pragma once

#include <optional>
#include <vector>

#include "backend/cuda/dense/chip.h"
#include "backend/cuda/dense/dense.h"
#include "backend/cuda/runtime/kernel.h"
#include "plan/gpu/falling_rows.h"

namespace penstock::cuda {

/// The launches that walk the steps of a pass over so many rows, by one plan that is no launch for every step.
class DenseWalk {
 public:
  DenseWalk(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
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
  std::optional<ChipWalk> chip_;
};

/// The walk of all rows, and where rows of falling length end one after the other, walks of those that are left: a pass
/// is then some stages, one after the other, between which states lie in memory.
class DenseWalks {
 public:
  /// `plan`: for all rows. `stage_rows`: as in DenseSpec.
  DenseWalks(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
             const std::vector<Index>& stage_rows);
  const DenseWalk& of_all() const { return walks_.front(); }
  std::size_t workspace_bytes() const { return walk_bytes() + (walks_.size() > 1 ? 2 * padded(state_bytes_) : 0); }
  void run(fill::DenseForwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
           StreamHandle stream) const;
  void run(fill::DenseBackwardArguments arguments, const DenseBatch& batch, DeviceAddress workspace,
           StreamHandle stream) const;

 private:
  std::size_t walk_bytes() const;
  std::vector<plan::FallingStage> stages_of(const DenseBatch& batch) const;

  std::vector<DenseWalk> walks_;           // of falling numbers of rows
  std::vector<plan::FallingPlan> counts_;  // the numbers
  double stage_microseconds_ = plan::stage_microseconds;
  std::size_t state_bytes_;  // of float [S, B, H]
};

}  // namespace penstock::cuda
