#pragma once

#include "backend/cpu/kernels.h"

namespace penstock::custom {
struct DerivedCell;
}

/// Jobs of the engines with a cell that a user defined. Its kernels take them where those of other cells take their
/// bases, and ops makes all jobs of this kind.
namespace penstock::cpu {

/// The equations and the learnt vectors [K, hidden] of a custom cell; null for cells of the list.
template <class Real>
struct CellProgram {
  const custom::DerivedCell* cell = nullptr;
  const Real* learnt = nullptr;
  Index hidden = 0;
};

template <class Real>
struct CustomForward : DenseForward<Real> {
  CellProgram<Real> custom;
  // Sums of all units, which the gates wait for in cells whose units read means over their head.
  Real* sums = nullptr;  // [B, 2, G, H], of W x and R h, in slot order
  Real* head = nullptr;  // [values of the program, units of a head], of the thread
};

template <class Real>
struct CustomBackward : DenseBackward<Real> {
  CellProgram<Real> custom;
  Real* dlearnt = nullptr;  ///< [rows of the piece, K, H]
  Real* head = nullptr;     ///< As in CustomForward.
};

template <class Real>
struct CustomStep : CellStep<Real> {
  CellProgram<Real> custom;
  Real* sums = nullptr;  // [2, G, H], as in CustomForward
  Real* head = nullptr;
};

/// Reals that `head` needs of a job, whatever the instruction set.
constexpr Index head_values(Index slots, Index units) {
  constexpr Index most_lanes = 64, alignment = 64;
  return slots * (units + most_lanes) + alignment;
}

template <class Real>
struct CustomLayer : ScanLayer<Real> {
  CellProgram<Real> custom;
};

template <class Real>
struct CustomScanForward : ScanForward<Real> {
  CellProgram<Real> custom;
};

template <class Real, class Stored = Real>
struct CustomScanBackward : ScanBackward<Real, Stored> {
  CellProgram<Real> custom;
  /// Gradients of learnt vector k at each step: these sinks' places, k * learnt_stride further.
  GateSink<Real> dlearnt;
  Index learnt_stride = 0;
};

// Fills like FillDenseForward(), FillDenseBackward() and FillScan(), for custom cells with so many gates.
void FillCustomForward(int gates, CellKernels<float>& kernels);
void FillCustomForward(int gates, CellKernels<double>& kernels);
void FillCustomBackward(int gates, CellKernels<float>& kernels);
void FillCustomBackward(int gates, CellKernels<double>& kernels);
void FillCustomScan(int gates, CellKernels<float>& kernels);
void FillCustomScan(int gates, CellKernels<double>& kernels);

/// Kernels of the instruction set in use for a custom cell, in full precision.
template <class Real>
CellKernels<Real> custom_kernels(const custom::DerivedCell& cell);

}  // namespace penstock::cpu
