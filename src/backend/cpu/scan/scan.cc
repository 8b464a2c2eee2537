// The engines of scan cells for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/scan/scan.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/scan/scan.inl"

#include "backend/cpu/dense/step_panels.inl"

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

template <class Real>
void FillGivenKind(Given given, CellKernels<Real>& kernels) {
  if (given == Given::terms) FillScans<Real, GivenTerms>(kernels);
  if (given == Given::logs) FillScans<Real, GivenLogs>(kernels);
  if (given == Given::signed_logs) FillScans<Real, GivenSignedLogs>(kernels);
}

}  // namespace

void FillGivenFloat(Given given, CellKernels<float>& kernels) { FillGivenKind(given, kernels); }
void FillScanFloat(int cell, CellKernels<float>& kernels) { FillByIndex(cell, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillScanDouble(int cell, CellKernels<double>& kernels) { FillByIndex(cell, kernels); }
void FillGivenDouble(Given given, CellKernels<double>& kernels) { FillGivenKind(given, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillScanFloat);
HWY_EXPORT(FillGivenFloat);

void FillScan(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillScanFloat)(cell, kernels); }
void FillScan(int cell, CellKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillScanDouble)(cell, kernels); }
void FillGiven(Given given, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillGivenFloat)(given, kernels); }
void FillGiven(Given given, CellKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillGivenDouble)(given, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
