// Loops over single values for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cc"

#include "backend/cpu/element_kernels.h"

#include "backend/cpu/every_target.inl"

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

#include "backend/cpu/elementwise.inl"

template <class Real>
void Fill(ElementKernels<Real>& kernels) {
  kernels.silu_gate = &SiluGate<Real>;
  kernels.silu_gate_backward = &SiluGateBackward<Real>;
  kernels.exponentials = &Exponentials<Real>;
  kernels.keep_factors = &KeepFactors<Real>;
  kernels.rms_norm = &RmsNorm<Real>;
  kernels.rms_norm_backward = &RmsNormBackward<Real>;
}

}  // namespace

void FillElementsFloat(ElementKernels<float>& kernels) {
  Fill(kernels);
  kernels.from_bf16 = &FromBf16;
  kernels.to_bf16 = &ToBf16;
  kernels.update = &UpdateOf;
}
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillElementsDouble(ElementKernels<double>& kernels) { Fill(kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillElementsFloat);

void FillElements(ElementKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillElementsFloat)(kernels); }
void FillElements(ElementKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillElementsDouble)(kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
