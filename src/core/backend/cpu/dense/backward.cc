// The backward engine of dense cells, built-in and defined ones, for every instruction set. Both have the same
// products, which are compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense/backward.cc"

#include "backend/cpu/custom/custom.h"
#include "backend/cpu/kernels.h"
#include "custom/cell.h"

#include "backend/cpu/every_target.inl"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/custom/evaluate.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/custom/backward.inl"

#include "backend/cpu/dense/backward.inl"

template <class Panel>
void FillCustomBackwardAs(int gates, CellKernels<RealOf<Panel>>& kernels) {
  WithCustomGates(gates, [&](auto tag) { FillDenseBackwardCell<Panel, typename decltype(tag)::type>(kernels); });
}

}  // namespace

void FillDenseBackwardFloat(int cell, CellKernels<float>& kernels) { FillDenseBackwardAs<float>(cell, kernels); }
void FillCustomBackwardFloat(int gates, CellKernels<float>& kernels) { FillCustomBackwardAs<float>(gates, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillDenseBackwardDouble(int cell, CellKernels<double>& kernels) { FillDenseBackwardAs<double>(cell, kernels); }
void FillCustomBackwardDouble(int gates, CellKernels<double>& kernels) { FillCustomBackwardAs<double>(gates, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDenseBackwardFloat);
HWY_EXPORT(FillCustomBackwardFloat);

void FillDenseBackward(int cell, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillDenseBackwardFloat)(cell, kernels);
}
void FillDenseBackward(int cell, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillDenseBackwardDouble)(cell, kernels);
}
void FillCustomBackward(int gates, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillCustomBackwardFloat)(gates, kernels);
}
void FillCustomBackward(int gates, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillCustomBackwardDouble)(gates, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
