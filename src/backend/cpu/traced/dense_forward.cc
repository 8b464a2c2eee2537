// The forward engine of dense cells that a user defined, for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/traced/dense_forward.cc"

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

void FillTracedForwardFloat(int gates, CellKernels<float>& kernels) { FillTracedForwardAs<float>(gates, kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillTracedForwardDouble(int gates, CellKernels<double>& kernels) { FillTracedForwardAs<double>(gates, kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillTracedForwardFloat);

void FillTracedForward(int gates, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillTracedForwardFloat)(gates, kernels);
}
void FillTracedForward(int gates, CellKernels<double>& kernels) {
  HWY_STATIC_DISPATCH(FillTracedForwardDouble)(gates, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
