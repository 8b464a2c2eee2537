#pragma once

#include "backend/cpu/kernels.h"

namespace penstock::formula {
struct DerivedCell;
}

/// Jobs of the engines with a cell that a user defined. Its kernels take them where those of other cells take their
/// bases, and ops makes all jobs of this kind.
namespace penstock::cpu {

/// The equations and the learnt vectors [K, hidden] of a defined cell; null for cells of the list.
template <class Real>
struct TracedCell {
  const formula::DerivedCell* cell = nullptr;
  const Real* learnt = nullptr;
  Index hidden = 0;
};

template <class Real>
struct TracedForward : DenseForward<Real> {
  TracedCell<Real> traced;
  // Sums of all units, which the gates wait for in cells whose units read means over their head.
  Real* sums = nullptr;  // [B, 2, G, H], of W x and R h, in slot order
  Real* head = nullptr;  // [values of the program, units of a head], of the thread
};

template <class Real>
struct TracedBackward : DenseBackward<Real> {
  TracedCell<Real> traced;
  Real* dlearnt = nullptr;  ///< [rows of the piece, K, H]
  Real* head = nullptr;     ///< As in TracedForward.
};

template <class Real>
struct TracedStep : CellStep<Real> {
  TracedCell<Real> traced;
  Real* sums = nullptr;  // [2, G, H], as in TracedForward
  Real* head = nullptr;
};

/// Reals that `head` needs of a job, whatever the instruction set.
constexpr Index head_values(Index slots, Index units) {
  constexpr Index most_lanes = 64, alignment = 64;
  return slots * (units + most_lanes) + alignment;
}

template <class Real>
struct TracedLayer : ScanLayer<Real> {
  TracedCell<Real> traced;
};

template <class Real>
struct TracedScanForward : ScanForward<Real> {
  TracedCell<Real> traced;
};

template <class Real, class Stored = Real>
struct TracedScanBackward : ScanBackward<Real, Stored> {
  TracedCell<Real> traced;
  /// Gradients of learnt vector k at each step: these sinks' places, k * learnt_stride further.
  GateSink<Real> dlearnt;
  Index learnt_stride = 0;
};

// Fills like FillDenseForward(), FillDenseBackward() and FillScan(), for defined cells with so many gates.
void FillTracedForward(int gates, CellKernels<float>& kernels);
void FillTracedForward(int gates, CellKernels<double>& kernels);
void FillTracedBackward(int gates, CellKernels<float>& kernels);
void FillTracedBackward(int gates, CellKernels<double>& kernels);
void FillTracedScan(int gates, CellKernels<float>& kernels);
void FillTracedScan(int gates, CellKernels<double>& kernels);

/// Kernels of the instruction set in use for a defined cell, in full precision.
template <class Real>
CellKernels<Real> traced_kernels(const formula::DerivedCell& cell);

}  // namespace penstock::cpu
