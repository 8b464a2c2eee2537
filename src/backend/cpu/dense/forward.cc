// The forward engine of dense cells for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense/forward.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

}  // namespace

void FillDenseForwardFloat(int cell, CellKernels<float>& kernels) { FillDenseForwardAs<float>(cell, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillDenseForwardDouble(int cell, CellKernels<double>& kernels) { FillDenseForwardAs<double>(cell, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDenseForwardFloat);

void FillDenseForward(int cell, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillDenseForwardFloat)(cell, kernels);
}
void FillDenseForward(int cell, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillDenseForwardDouble)(cell, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
