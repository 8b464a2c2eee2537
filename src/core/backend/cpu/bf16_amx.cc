// The forward engines over weights rounded to bfloat16, for AVX-512 with AMX.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_amx.cc"

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

#include "backend/cpu/dense/tiles.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/scan/step.inl"

#include "backend/cpu/scan/layer.inl"

#include "backend/cpu/scan/tiles.inl"

}  // namespace

void FillTiles(int cell, CellKernels<float>& kernels) {
  FillDenseForwardAs<Bf16Tile>(cell, kernels);
  FillScanLayersAs<Bf16Tile>(cell, kernels);
}

#else

void FillTiles(int, CellKernels<float>&) {}  // never called: only AVX-512 is extended by AMX

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillTiles);

void FillBf16Tiles(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillTiles)(cell, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
