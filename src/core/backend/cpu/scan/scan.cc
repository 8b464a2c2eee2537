// The engines of scan cells, built-in and defined ones, for every instruction set. Both have the same products, which
// are compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/scan/scan.cc"

#include "backend/cpu/custom/custom.h"
#include "backend/cpu/kernels.h"
#include "custom/cell.h"

#include "backend/cpu/every_target.inl"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/custom/evaluate.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/custom/scan.inl"

#include "backend/cpu/scan/scan.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/custom/scan_layer.inl"

#include "backend/cpu/scan/step.inl"

#include "backend/cpu/scan/layer.inl"

#include "backend/cpu/dense/panel_product.inl"

#include "backend/cpu/product/transposed_tile.inl"

#include "backend/cpu/scan/gradient.inl"

#include "backend/cpu/scan/fill.inl"

#include "cells/given.h"

template <class Real>
void FillByIndex(int cell, CellKernels<Real>& kernels) {
  WithScanCell(cell, [&](auto tag) { FillScanCell<Real, typename decltype(tag)::type>(kernels); });
  FillScanLayersAs<Real>(cell, kernels);
}

template <class Real, class Cell>
void FillCustomScanCell(CellKernels<Real>& kernels) {
  FillScanCell<Real, Cell>(kernels);
  FillScanLayerCell<Real, Cell>(kernels);
}

template <class Real>
void FillCustomScanAs(int gates, CellKernels<Real>& kernels) {
  static_assert(kMostScanGates == 3);
  if (gates == 1) return FillCustomScanCell<Real, CustomScan<1>>(kernels);
  if (gates == 2) return FillCustomScanCell<Real, CustomScan<2>>(kernels);
  if (gates == 3) return FillCustomScanCell<Real, CustomScan<3>>(kernels);
}

template <class Real>
void FillGivenKind(Given given, CellKernels<Real>& kernels) {
  if (given == Given::terms) FillScans<Real, GivenTerms>(kernels);
  if (given == Given::logs) FillScans<Real, GivenLogs>(kernels);
  if (given == Given::signed_logs) FillScans<Real, GivenSignedLogs>(kernels);
}

}  // namespace

void FillGivenFloat(Given given, CellKernels<float>& kernels) { FillGivenKind(given, kernels); }
void FillScanFloat(int cell, CellKernels<float>& kernels) { FillByIndex(cell, kernels); }
void FillCustomScanFloat(int gates, CellKernels<float>& kernels) { FillCustomScanAs<float>(gates, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillScanDouble(int cell, CellKernels<double>& kernels) { FillByIndex(cell, kernels); }
void FillCustomScanDouble(int gates, CellKernels<double>& kernels) { FillCustomScanAs<double>(gates, kernels); }
void FillGivenDouble(Given given, CellKernels<double>& kernels) { FillGivenKind(given, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillScanFloat);
HWY_EXPORT(FillCustomScanFloat);
HWY_EXPORT(FillGivenFloat);

void FillScan(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillScanFloat)(cell, kernels); }
void FillScan(int cell, CellKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillScanDouble)(cell, kernels); }
void FillCustomScan(int gates, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillCustomScanFloat)(gates, kernels);
}
void FillCustomScan(int gates, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillCustomScanDouble)(gates, kernels);
}
void FillGiven(Given given, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillGivenFloat)(given, kernels); }
void FillGiven(Given given, CellKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillGivenDouble)(given, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
