#pragma once

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/dense/fill.h"
#include "backend/cuda/product/matrix_product.h"

/// Recurrences whose every step is a matrix product and a launch that applies the cell (plan::DenseAlgorithm::step):
/// for recurrent matrices that no part of the chip can hold.
namespace penstock::cuda {

KernelSource dense_step_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

/// One product for each head, of some of the gates.
class HeadProducts {
 public:
  /// Gates first .. first + count - 1. Forward R times [B, H]; backward their gradients [B, heads, G, D] times R.
  HeadProducts(Device& device, const plan::GpuDenseProblem& problem, Index first, Index count);
  std::size_t workspace_bytes() const { return product_.workspace_bytes(); }
  void run(DeviceAddress factor, DeviceAddress recurrent, DeviceAddress result, DeviceAddress workspace,
           StreamHandle stream) const;

 private:
  MatrixProduct product_;
  Index heads_;
  /// Bytes to the first head's, and from head to head.
  struct Distance {
    Index first = 0, apart = 0;
    DeviceAddress from(DeviceAddress address, Index head) const {
      return address + static_cast<DeviceAddress>(first + head * apart);
    }
  };
  Distance factor_, recurrent_, result_;
};

/// The steps of a forward pass. Running allocates nothing and can be captured.
class StepForward {
 public:
  StepForward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  const Kernel& kernel() const { return *kernel_; }
  std::size_t workspace_bytes() const { return places().end; }
  void run(const fill::DenseForwardArguments& call, Index steps, DeviceAddress workspace, StreamHandle stream) const;

 private:
  struct Places {
    std::size_t products, state, operand, multiply, end;
  };
  Places places() const;

  plan::GpuDenseProblem problem_;
  Launch launch_;
  const Kernel* kernel_;
  std::vector<HeadProducts> phases_;
};

/// The steps of a backward pass.
class StepBackward {
 public:
  StepBackward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  const Kernel& kernel() const { return *kernel_; }
  std::size_t workspace_bytes() const { return places().end; }
  void run(const fill::DenseBackwardArguments& call, Index steps, DeviceAddress workspace, StreamHandle stream) const;

 private:
  struct Places {
    std::size_t through, doperand, carry, gates, multiply, end;
  };
  Places places() const;

  plan::GpuDenseProblem problem_;
  Launch launch_;
  const Kernel* kernel_;
  std::vector<HeadProducts> phases_;  // in the order of a forward pass
};

}  // namespace penstock::cuda
