// The backward engine of dense cells for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense/backward.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/backward.inl"

}  // namespace

void FillDenseBackwardFloat(int cell, CellKernels<float>& kernels) { FillDenseBackwardAs<float>(cell, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillDenseBackwardDouble(int cell, CellKernels<double>& kernels) { FillDenseBackwardAs<double>(cell, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDenseBackwardFloat);

void FillDenseBackward(int cell, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillDenseBackwardFloat)(cell, kernels);
}
void FillDenseBackward(int cell, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillDenseBackwardDouble)(cell, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
