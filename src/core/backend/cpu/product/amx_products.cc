// Fp32 GEMMs by AMX.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/product/amx_products.cc"

#include "backend/cpu/kernels.h"
#include "base/aligned.h"

#include "backend/cpu/every_target.inl"

#undef PENSTOCK_BF16_TILES
#define PENSTOCK_BF16_TILES 1
#include "backend/cpu/bf16_begin.inl"

namespace penstock::cpu::HWY_NAMESPACE {

#if PENSTOCK_BF16_PRODUCTS

namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/product/amx_panels.inl"

#include "backend/cpu/product/transposed_tile.inl"

#include "backend/cpu/product/transposed_product.inl"

#include "backend/cpu/product/amx_floats.inl"

#include "backend/cpu/product/split_product.inl"

}  // namespace

void FillSplit(ProductKernels<float>& kernels) {
  kernels.add_transposed = &SplitTransposed::add;
  kernels.transposed_scratch = &SplitTransposed::scratch;
  kernels.product_panels = &SplitPanels::size;
  kernels.pack_product_panels = &SplitPanels::pack;
  kernels.rows_times_panels = &SplitPanels::multiply;
  kernels.multiply = &SplitMatrices::multiply;
}

#else

void FillSplit(ProductKernels<float>&) {}  // never called: only AVX-512 is extended by AMX

#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillSplit);

void FillSplitProducts(ProductKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillSplit)(kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
