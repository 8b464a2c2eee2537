#pragma once

#include <optional>

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/dense/diagonal.h"
#include "backend/cuda/dense/loop.h"
#include "backend/cuda/dense/steps.h"
#include "backend/cuda/product/matrix_product.h"
#include "backend/cuda/product/sum_columns.h"

namespace penstock::cuda {

/// Puts rows in the order of decreasing length, so that a block's rows end at about the same step and its slots are not
/// kept by steps that do not exist.
class RowOrder {
 public:
  RowOrder() = default;
  RowOrder(Device& device, const DenseBatch& batch);
  std::size_t workspace_bytes() const;
  /// The address of the order, or 0 if rows need none.
  DeviceAddress run(const DenseBatch& batch, DeviceAddress workspace, StreamHandle stream) const;

 private:
  Index rows_ = 0;
  const Kernel* kernel_ = nullptr;
};

/// The order that a plan wants: none where every step is a launch of all rows.
RowOrder row_order(Device& device, const DenseBatch& batch, const plan::GpuDensePlan& plan);

/// A forward pass of one form, planned, compiled and ready to run. Running allocates nothing, waits for nothing, and
/// can be captured. Not safe for two calls at once in one workspace.
class DenseForwardExecutable {
 public:
  /// Throws Error: invalid_argument for what does not fit, unsupported for what no algorithm (or not the one asked for)
  /// can do, and without NVRTC.
  DenseForwardExecutable(Device& device, const DenseSpec& spec, const DenseForward& call);
  /// Uses a plan of the caller's, for measurements.
  DenseForwardExecutable(Device& device, const DenseSpec& spec, const DenseForward& call,
                         const plan::GpuDensePlan& plan);
  const plan::GpuDensePlan& plan() const { return plan_; }
  const Kernel& kernel() const {
    return steps_ ? steps_->kernel() : diagonal_ ? diagonal_->kernel() : loops_->of_all().kernel();
  }
  /// Bytes of workspace, aligned to 128.
  std::size_t workspace_bytes() const;
  /// A call of the form that was prepared: other addresses of the same alignment or better, as many rows and no more
  /// steps, lengths, resets and a tape or none as there.
  void run(const DenseForward& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  DenseSpec spec_;
  plan::GpuDenseProblem problem_;
  plan::GpuDensePlan plan_;
  RowOrder order_;
  // One of these, as the plan has it.
  std::optional<StepForward> steps_;
  std::optional<DiagonalForward> diagonal_;
  std::optional<DenseLoops> loops_;
};

/// Gradients of a recurrent matrix from the gradients of the products [P, gate pitch] and what they were products of
/// [P, unit_pitch()]: of one head a matrix product, of several a kernel that makes no more than each head's own part;
/// of two-phase cells, for each group of gates.
class RecurrentGradient {
 public:
  RecurrentGradient() = default;
  /// `alignment`: bytes that the gradients' address is a multiple of; the others are multiples of 16.
  RecurrentGradient(Device& device, const DenseSpec& spec, Index positions, int alignment);
  std::size_t workspace_bytes() const;
  /// Returns the values from position to position of what the gates are products of.
  Index unit_pitch() const;
  /// `second`: what the gates of the second phase are products of. `gradient`: float [heads, G, D, D].
  void run(DeviceAddress gates, DeviceAddress entering, DeviceAddress second, DeviceAddress gradient,
           DeviceAddress workspace, StreamHandle stream) const;

 private:
  /// Gates first .. first + count - 1.
  struct Group {
    Index first = 0, count = 0;
    MatrixProduct product;           // of one head
    const Kernel* kernel = nullptr;  // of several
    unsigned blocks = 0;
  };
  void run_group(const Group& group, DeviceAddress gates, DeviceAddress operand, DeviceAddress gradient,
                 DeviceAddress workspace, StreamHandle stream) const;

  DenseSpec spec_;
  Index positions_ = 1, gates_ = 1;
  Index chunk_ = 1, chunks_ = 1;  // of the positions, several heads
  std::vector<Group> groups_;
  const Kernel* sum_ = nullptr;  // of chunks
};

/// Gradients of a layer's recurrence: the loop over the steps, then the products over all positions.
class DenseBackwardExecutable {
 public:
  DenseBackwardExecutable(Device& device, const DenseSpec& spec, const DenseBackward& call);
  DenseBackwardExecutable(Device& device, const DenseSpec& spec, const DenseBackward& call,
                          const plan::GpuDensePlan& plan);
  const plan::GpuDensePlan& plan() const { return plan_; }
  const Kernel& kernel() const {
    return steps_ ? steps_->kernel() : diagonal_ ? diagonal_->kernel() : loops_->of_all().kernel();
  }
  /// Bytes of scratch memory of any contents, aligned to 128.
  std::size_t scratch_bytes() const;
  /// Bytes of counters: zero before their first use, and every run leaves them so. Aligned to 128.
  std::size_t counters_bytes() const;
  /// Bytes of scratch memory with the counters behind it.
  std::size_t workspace_bytes() const { return scratch_bytes() + counters_bytes(); }
  void run(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream) const;
  /// The loop alone, without gradients of weights and biases; also of some steps (steps_of), where the plan is for a
  /// block or a cluster of them.
  void run_loop(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream) const;
  /// Gradients of weights and biases, after the loop over all steps in the same scratch memory.
  void run_products(const DenseBackward& call, DeviceAddress scratch, DeviceAddress counters,
                    StreamHandle stream) const;

 private:
  /// Places of the parts of a workspace.
  struct Places {
    std::size_t order, dlearnt, drestarts, entering, operand, loop, products, counters;
  };
  Places places() const;
  std::size_t loop_bytes() const;
  std::size_t dlearnt_bytes() const;
  /// Returns the bytes from position to position of what the recurrent matrix was multiplied by.
  Index unit_bytes() const;
  std::size_t drestarts_bytes() const;
  void set_drestarts(const DenseBackward& call, DeviceAddress workspace, StreamHandle stream,
                     fill::DenseBackwardArguments& arguments) const;
  std::size_t bias_counters_bytes() const;
  void run_bias_sums(const DenseBackward& call, DeviceAddress counters, StreamHandle stream) const;

  DenseSpec spec_;
  plan::GpuDenseProblem problem_;
  plan::GpuDensePlan plan_;
  RowOrder order_;
  const Kernel* entering_kernel_ = nullptr;
  int entering_vector_ = 1;
  Index positions_ = 1;
  bool wants_weight_ = false, two_phases_ = false;
  // One of these, as the plan has it.
  std::optional<StepBackward> steps_;
  std::optional<DiagonalBackward> diagonal_;  // which makes the gradients of weights and biases as well
  std::optional<DenseLoops> loops_;
  std::optional<RecurrentGradient> gradient_;
  std::optional<SumColumnsExecutable> bias_sums_, learnt_sums_, restart_sums_;  // of positions; of rows; of rows
};

}  // namespace penstock::cuda
