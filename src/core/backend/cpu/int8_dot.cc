// The forward engines over weights of int8, for AVX-512 with VNNI and NEON with its dot product.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/int8_dot.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_INT8_DOT
#define PENSTOCK_INT8_DOT 1
#include "backend/cpu/int8_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_INT8_PRODUCTS

namespace {

#include "backend/cpu/int8_engines.inl"

}  // namespace

void FillDots(int cell, CellKernels<float>& kernels) { FillInt8Engines(cell, kernels); }

#else

void FillDots(int cell, CellKernels<float>& kernels) { FillInt8(cell, kernels); }  // has no dot products

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillDots);

void FillInt8Dot(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillDots)(cell, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
