#pragma once

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/dense/fill.h"

/// The kernels that spread the recurrent matrix of one head over many clusters of blocks (plan::DenseAlgorithm::chip),
/// and how these and those of plan::DenseAlgorithm::warpgroup are launched.
namespace penstock::cuda {

KernelSource dense_chip_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

/// One pass, its heads and slices of rows in as many launches as they take.
class ChipLoop {
 public:
  ChipLoop(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  std::size_t workspace_bytes() const;
  void run(const fill::DenseForwardArguments& call, DeviceAddress workspace, StreamHandle stream) const;
  void run(const fill::DenseBackwardArguments& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  template <class Arguments, class Call>
  void run_all(const Call& call, DeviceAddress workspace, StreamHandle stream) const;

  plan::GpuDensePlan plan_;
  Index items_;  // heads x slices
  const Kernel* kernel_;
};

}  // namespace penstock::cuda
