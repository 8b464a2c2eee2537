// The forward engines over weights rounded to bfloat16, for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_forward.cc"

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TILES 0
#include "backend/cpu/bf16_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_bf16.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/scan/step.inl"

#include "backend/cpu/scan/layer.inl"

template <class Panel>
void FillAs(int cell, CellKernels<float>& kernels) {
  FillDenseForwardAs<Panel>(cell, kernels);
  FillScanLayersAs<Panel>(cell, kernels);
}

}  // namespace

void FillRounded(int cell, Precision precision, CellKernels<float>& kernels) {
#if PENSTOCK_BF16_PRODUCTS
  if (precision == Precision::bf16 && has_bf16_products()) return FillAs<Bf16Product>(cell, kernels);
#endif
  static_cast<void>(precision);
  FillAs<Bf16Weight>(cell, kernels);
}

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillRounded);

void FillBf16(int cell, Precision precision, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillRounded)(cell, precision, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
