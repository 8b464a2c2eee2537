// The forward engine of dense cells, built-in and defined ones, for every instruction set. Both have the same products,
// which are compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense/forward.cc"

#include "backend/cpu/kernels.h"
#include "backend/cpu/traced/traced.h"
#include "formula/cell.h"

#include "backend/cpu/every_target.inl"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/traced/evaluate.inl"

#include "backend/cpu/traced/forward.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/traced/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

template <class Panel>
void FillTracedForwardAs(int gates, CellKernels<RealOf<Panel>>& kernels) {
  WithTracedGates(gates, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    FillDenseForwardCell<Panel, Cell>(kernels);
    kernels.step = &RunTracedStep<Panel, Cell>;
  });
}

}  // namespace

void FillDenseForwardFloat(int cell, CellKernels<float>& kernels) { FillDenseForwardAs<float>(cell, kernels); }
void FillTracedForwardFloat(int gates, CellKernels<float>& kernels) { FillTracedForwardAs<float>(gates, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillDenseForwardDouble(int cell, CellKernels<double>& kernels) { FillDenseForwardAs<double>(cell, kernels); }
void FillTracedForwardDouble(int gates, CellKernels<double>& kernels) { FillTracedForwardAs<double>(gates, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDenseForwardFloat);
HWY_EXPORT(FillTracedForwardFloat);

void FillDenseForward(int cell, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillDenseForwardFloat)(cell, kernels);
}
void FillDenseForward(int cell, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillDenseForwardDouble)(cell, kernels);
}
void FillTracedForward(int gates, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillTracedForwardFloat)(gates, kernels);
}
void FillTracedForward(int gates, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillTracedForwardDouble)(gates, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
