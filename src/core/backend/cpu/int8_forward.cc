// The forward engines over weights of int8, for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/int8_forward.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_INT8_DOT
#define PENSTOCK_INT8_DOT 0
#include "backend/cpu/int8_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/int8_engines.inl"

}  // namespace

void FillBytes(int cell, CellKernels<float>& kernels) { FillInt8Engines(cell, kernels); }

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillBytes);

void FillInt8(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillBytes)(cell, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
