#pragma once

#include <array>

#include "backend/cuda/driver/kernel.h"
#include "backend/cuda/scan/scan_rule.h"
#include "plan/gpu/scan.h"

namespace penstock::cuda {

/// What a kernel is told before it is compiled.
namespace given {
#include "backend/cuda/kernels/scan/pass.h"
}

/// A tensor [B, T, C] on a GPU: channels side by side, strides in elements, of either sign. Packed rows lie one after
/// the other along T.
struct DeviceSequence {
  DeviceAddress data = 0;
  Index row_stride = 0;
  Index step_stride = 0;
};

/// States with which rows start again at resets: state k before step t of row b begins at data + k * state + b * row +
/// t * step, in floats. Strides of 0 share states. No data: zeros.
struct RestartStates {
  DeviceAddress data = 0;
  Index state = 0, row = 0, step = 0;
};

/// Shape that the two passes of a linear recurrence share.
struct ScanShape {
  ScanRule rule = given_terms;
  plan::Storage storage = plan::Storage::f32;
  Index rows = 1;
  Index steps = 1;  ///< T; packed rows: the steps of all rows together.
  Index channels = 1;
  bool reverse = false;  ///< The recurrence runs from the last step of a row to the first.
  /// The outputs hold what a pass from other states has written, and only what differs is written again: what comes
  /// before the states of both are the same number. In the direct algorithm.
  bool corrects = false;
  DeviceAddress lengths = 0;     ///< int64 [B] or 0; what lies beyond a row's length becomes zero in the outputs.
  DeviceAddress cu_seqlens = 0;  ///< int64 [B + 1] or 0, instead of lengths.
  Index longest = 0;             ///< Packed rows: no row is longer than this; 0: `steps`.
  DeviceAddress reset = 0;       ///< uint8 [B, T] or 0: nonzero starts the state again before a step.
  Index reset_row_stride = 0, reset_step_stride = 0;
  RestartStates restarts = {};  ///< With `reset`, not in packed rows and corrections.
  DeviceAddress learnt = 0;     ///< [K, C] in the storage, of rules with learnt vectors.
  plan::ScanAlgorithm algorithm =
      plan::ScanAlgorithm::automatic;  ///< Algorithm of the executable; a call need not say it.
};

/// The values of a step that the rule makes a and b of, in its order; those beyond its `gates` are not looked at.
using ScanTerms = std::array<DeviceSequence, 3>;

/// y_t = a_t y_{t-1} + b_t. State and arithmetic are float; states are float [B, C] without gaps, or 0.
struct ScanForward {
  ScanShape shape;
  ScanTerms terms;
  DeviceSequence y;             ///< May be one of the terms.
  DeviceAddress state_in = 0;   ///< y before the first step; 0: zeros.
  DeviceAddress state_out = 0;  ///< y after the last step of each row; may be state_in.
  DeviceAddress earlier = 0;    ///< Corrections: state_in of the pass before.
};

/// Its gradients: those of the terms from dy and from the gradient of the last state.
struct ScanBackward {
  ScanShape shape;
  ScanTerms terms;               ///< As of the forward pass; the rule's first `read_back` ones.
  DeviceSequence y, dy;          ///< As of the forward pass.
  ScanTerms dterms;              ///< May be the terms and dy, but not y.
  DeviceAddress state_in = 0;    ///< As of the forward pass.
  DeviceAddress dstate_out = 0;  ///< 0: zeros.
  DeviceAddress dstate_in = 0;   ///< Written unless 0; may be dstate_out.
  DeviceAddress earlier = 0;     ///< Corrections: dstate_out of the pass before.
  /// float [dlearnt_rows(), K, C], zero before: added to, so that its rows add up to the gradients of the learnt
  /// vectors. 0: not wanted.
  DeviceAddress dlearnt = 0;
  /// Zeros, to which the gradients of restarts are added; 0: not wanted. Those of `restarts.step` have its strides.
  /// Others are float [step_groups(), B, C], shares that add up to them.
  DeviceAddress drestarts = 0;
};

/// A recurrence of one form, planned, compiled and ready to run. Running allocates nothing, waits for nothing, and can
/// be captured into a graph.
class ScanExecutable {
 public:
  /// Plans for the shapes, strides and alignments of the call and compiles. Throws Error: invalid_argument for what
  /// does not fit, unsupported without a compiler.
  ScanExecutable(Device& device, const ScanForward& call);
  ScanExecutable(Device& device, const ScanBackward& call);
  /// Uses a plan of the caller's, for measurements.
  ScanExecutable(Device& device, const ScanForward& call, const plan::GpuScanPlan& plan);
  ScanExecutable(Device& device, const ScanBackward& call, const plan::GpuScanPlan& plan);

  const plan::GpuScanPlan& plan() const { return plan_; }
  const Kernel& kernel() const { return *kernel_; }
  /// Bytes of workspace. It must be zero before its first use and belongs to one run at a time; every run leaves it
  /// ready for the next one, whatever its shape.
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// Rows of ScanBackward::dlearnt.
  Index dlearnt_rows() const { return problem_.rows * step_groups(); }
  /// Returns how many groups of steps that a thread runs at once a row has.
  Index step_groups() const { return (problem_.steps + plan_.steps - 1) / plan_.steps; }

  /// The call may have other addresses and strides than the one planned for, of the same alignment or better, and no
  /// more rows, steps or channels. Throws Error(invalid_argument) otherwise.
  void run(const ScanForward& call, DeviceAddress workspace, StreamHandle stream) const;
  void run(const ScanBackward& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  template <class Call>
  void prepare(Device& device, const Call& call, const plan::GpuScanPlan& plan);
  template <class Call>
  void launch(const Call& call, DeviceAddress workspace, StreamHandle stream) const;

  plan::CellText rule_;
  plan::GpuScanProblem problem_;
  bool corrects_ = false;
  plan::GpuScanPlan plan_;
  std::size_t workspace_bytes_ = 0;
  const Kernel* kernel_ = nullptr;
};

/// The problem of a call: what its addresses and strides allow. Throws Error(invalid_argument) for what never fits.
plan::GpuScanProblem problem_of(const ScanForward& call);
plan::GpuScanProblem problem_of(const ScanBackward& call);

/// The struct of kernels/prelude.cuh for a storage.
std::string_view storage_type(plan::Storage storage);

/// What the kernels of all scans are told.
given::ScanTile scan_tile(const plan::GpuScanProblem& problem, const plan::GpuScanPlan& plan);
/// The kernel for a problem and a plan.
KernelSource scan_source(const ScanRule& rule, const plan::GpuScanProblem& problem, const plan::GpuScanPlan& plan,
                         bool corrects = false);

}  // namespace penstock::cuda
