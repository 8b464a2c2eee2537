// The forward engines over weights of int8, for AVX-512 with VNNI and AMX.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/int8_amx.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_INT8_AMX
#define PENSTOCK_INT8_AMX 1
#include "backend/cpu/int8_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_INT8_TILES

namespace {

#include "backend/cpu/int8_engines.inl"

}  // namespace

void FillByteTiles(int cell, CellKernels<float>& kernels) { FillInt8Engines(cell, kernels); }

#else

void FillByteTiles(int, CellKernels<float>&) {}  // never called: only AVX-512 is extended by AMX

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillByteTiles);

void FillInt8Tiles(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillByteTiles)(cell, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
