// The backward pass through scan cells in bfloat16, for AVX-512 with instructions for that, AMX or not.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_scan_backward.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TILES 1
#include "backend/cpu/bf16_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_BF16_PRODUCTS

namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_bf16.inl"

#include "backend/cpu/product/amx_panels.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/scan/scan.inl"

#include "backend/cpu/scan/gradient_bf16.inl"

template <class Panel, class Cell>
void FillScanBackwardCell(CellKernels<float>& kernels) {
  kernels.rounded_gradients = &PanelInputs<Panel>;
  kernels.rounded_scan_backward = {&RunScanBackward<float, Cell, std::uint16_t>,
                                   &RunScanBackwardSummary<float, Cell, std::uint16_t>,
                                   &ScanGradientPanelsRounded<Panel>,
                                   &PackScanGradientRounded<Panel>,
                                   &PackScanInputRounded<Panel>,
                                   &RunScanInputGradientRounded<Panel>,
                                   &RunScanWeightGradientRounded<Panel>};
}

template <class Panel>
void FillScanBackwardAs(int cell, CellKernels<float>& kernels) {
  WithScanCell(cell, [&](auto tag) { FillScanBackwardCell<Panel, typename decltype(tag)::type>(kernels); });
}

}  // namespace

void FillRoundedScanBackward(int cell, bool tiles, CellKernels<float>& kernels) {
  if (tiles) return FillScanBackwardAs<Bf16Tile>(cell, kernels);
  FillScanBackwardAs<Bf16Product>(cell, kernels);
}

#else

void FillRoundedScanBackward(int, bool, CellKernels<float>&) {}  // never called: only AVX-512 multiplies bfloat16

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillRoundedScanBackward);

void FillBf16ScanBackward(int cell, bool tiles, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillRoundedScanBackward)(cell, tiles, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
