// Dense cells in floats by AMX, both ways.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dense_split.cc"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "base/aligned.h"

#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#undef PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TILES 1
#include "backend/cpu/bf16_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_BF16_PRODUCTS

namespace {

#include "backend/cpu/target.inl"

#include "backend/cpu/panel.inl"

#include "backend/cpu/panel_packing.inl"

#include "backend/cpu/tiles.inl"

#include "backend/cpu/split_tiles.inl"

#include "backend/cpu/dense_input.inl"

#include "backend/cpu/dense_forward.inl"

#include "backend/cpu/dense_backward.inl"

#include "backend/cpu/dense_tile_step.inl"

#include "backend/cpu/dense_split.inl"

template <class Cell>
void FillSplitCell(CellKernels<float>& kernels) {
  kernels.dense_forward = &RunDenseForward<SplitTile, Cell>;
  kernels.dense_backward = &RunDenseBackward<SplitTile, Cell>;
  kernels.split_forward = {&SplitForwardSize<Cell>, &PackSplitForward<Cell>};
  kernels.split_backward = {&SplitBackwardSize<Cell>, &PackSplitBackward<Cell>};
}

}  // namespace

void FillSplit(int cell, CellKernels<float>& kernels) {
  WithDenseCell(cell, [&](auto tag) { FillSplitCell<typename decltype(tag)::type>(kernels); });
}

#else

void FillSplit(int, CellKernels<float>&) {}  // never called: only AVX-512 is extended by AMX

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillSplit);

void FillSplitDense(int cell, CellKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillSplit)(cell, kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
