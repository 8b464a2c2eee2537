// The forward engine of dense cells, built-in and defined ones, for every instruction set. Both have the same products,
// which are compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense/forward.cc"

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

#include "backend/cpu/custom/forward.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/custom/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

template <class Panel>
void FillCustomForwardAs(int gates, CellKernels<RealOf<Panel>>& kernels) {
  WithCustomGates(gates, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    FillDenseForwardCell<Panel, Cell>(kernels);
    kernels.step = &RunCustomStep<Panel, Cell>;
  });
}

}  // namespace

void FillDenseForwardFloat(int cell, CellKernels<float>& kernels) { FillDenseForwardAs<float>(cell, kernels); }
void FillCustomForwardFloat(int gates, CellKernels<float>& kernels) { FillCustomForwardAs<float>(gates, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillDenseForwardDouble(int cell, CellKernels<double>& kernels) { FillDenseForwardAs<double>(cell, kernels); }
void FillCustomForwardDouble(int gates, CellKernels<double>& kernels) { FillCustomForwardAs<double>(gates, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDenseForwardFloat);
HWY_EXPORT(FillCustomForwardFloat);

void FillDenseForward(int cell, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillDenseForwardFloat)(cell, kernels);
}
void FillDenseForward(int cell, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillDenseForwardDouble)(cell, kernels);
}
void FillCustomForward(int gates, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillCustomForwardFloat)(gates, kernels);
}
void FillCustomForward(int gates, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillCustomForwardDouble)(gates, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
