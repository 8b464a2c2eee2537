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
};

template <class Real>
struct TracedBackward : DenseBackward<Real> {
  TracedCell<Real> traced;
  Real* dlearnt = nullptr;  ///< [rows of the piece, K, H]
};

template <class Real>
struct TracedStep : CellStep<Real> {
  TracedCell<Real> traced;
};

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

// As FillDenseForward(), FillDenseBackward() and FillScan(), for defined cells with so many gates.
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
