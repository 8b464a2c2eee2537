// The backward engine of dense cells in bfloat16, for AVX-512 with instructions for that, AMX or not.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_backward.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TILES 1
#include "backend/cpu/bf16_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_BF16_PRODUCTS

namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_bf16.inl"

#include "backend/cpu/product/amx_panels.inl"

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/dense/forward.inl"

#include "backend/cpu/dense/backward.inl"

#include "backend/cpu/dense/backward_tiles.inl"

}  // namespace

void FillRoundedBackward(int cell, bool tiles, CellKernels<float>& kernels) {
  if (tiles) return FillDenseBackwardAs<Bf16Tile>(cell, kernels);
  FillDenseBackwardAs<Bf16Product>(cell, kernels);
}

#else

void FillRoundedBackward(int, bool, CellKernels<float>&) {}  // never called: only AVX-512 multiplies bfloat16

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillRoundedBackward);

void FillBf16Backward(int cell, bool tiles, CellKernels<float>& kernels) {
  HWY_DYNAMIC_DISPATCH(FillRoundedBackward)(cell, tiles, kernels);
}

}  // namespace penstock::cpu
#endif  // HWY_ONCE
