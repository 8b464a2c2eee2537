#pragma once

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/dense/fill.h"
#include "backend/cuda/driver/kernel.h"

/// The kernels of diagonal recurrent matrices, where every unit is a head (plan::DenseAlgorithm::diagonal).
namespace penstock::cuda {

/// The kernels of a pass.
enum class DiagonalPart {
  chains,   ///< Runs whole chains, or their pieces for the last time.
  pieces,   ///< Forward: runs pieces from guesses; backward: finds the effect of each.
  between,  ///< Goes from piece to piece.
  exact,    ///< Forward: runs whole chains whose pieces have not joined.
};

KernelSource dense_diagonal_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
                                   DiagonalPart part = DiagonalPart::chains);

/// Parts that both passes share: kernels, and how chains are cut into pieces.
class DiagonalPass {
 public:
  DiagonalPass(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan,
               const std::vector<DiagonalPart>& parts);
  const Kernel& kernel() const { return *kernels_.front(); }

 protected:
  /// Threads of a launch: one for each piece of each chain, or one for each chain.
  Launch launch(Index pieces) const;
  Launch join_launch() const;
  Index chains() const { return problem_.rows * problem_.hidden; }
  Index states() const { return plan::cell_traits(problem_.cell).states(); }

  plan::GpuDenseProblem problem_;
  plan::GpuDensePlan plan_;
  std::vector<const Kernel*> kernels_;  // as the parts that were asked for

 private:
  static Launch launch_of(Index threads, Index of_block);
};

/// A forward pass. Running allocates nothing and can be captured.
class DiagonalForward : public DiagonalPass {
 public:
  DiagonalForward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  std::size_t workspace_bytes() const { return places().end; }
  void run(const fill::DenseForwardArguments& call, Index steps, DeviceAddress workspace, StreamHandle stream) const;

 private:
  struct Places {
    std::size_t entering, leaving, jacobian, iterations, end;
  };
  Places places() const;
};

/// A backward pass, the gradients of the weights included.
class DiagonalBackward : public DiagonalPass {
 public:
  DiagonalBackward(Device& device, const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
  std::size_t workspace_bytes() const { return places().end; }
  /// `gradients`: each 0: not wanted.
  void run(const fill::DenseBackwardArguments& call, const DenseWeights& gradients, Index steps,
           DeviceAddress workspace, StreamHandle stream) const;

 private:
  struct Places {
    std::size_t carry, gain, weight, bias_ih, bias_hh, learnt, end;
  };
  Places places() const;
  /// Adds up the shares of `vectors` vectors [H].
  void add_up(DeviceAddress shares, DeviceAddress gradient, Index vectors, StreamHandle stream) const;

  const Kernel* sum_;
};

}  // namespace penstock::cuda
