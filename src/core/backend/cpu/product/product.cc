// Matrix products of fixed summation order for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/product/product.cc"

#include "backend/cpu/kernels.h"

#include "backend/cpu/every_target.inl"

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/product/product.inl"

#include "backend/cpu/product/transposed_tile.inl"

#include "backend/cpu/product/transposed_product.inl"

#include "backend/cpu/dense/panel_product.inl"

template <class Real>
void Fill(ProductKernels<Real>& kernels) {
  kernels.rows_times_rows = &RowsTimesRows<Real>;
  kernels.rows_times_columns = &RowsTimesColumns<Real>;
  kernels.add_transposed = &AddTransposed<Real>;
  kernels.transposed_scratch = &TransposedScratch<Real>;
  kernels.product_panels = &ProductPanels<Real>;
  kernels.pack_product_panels = &PackProductPanels<Real>;
  kernels.rows_times_panels = &RowsTimesPanels<Real>;
}

}  // namespace

void FillProductsFloat(ProductKernels<float>& kernels) { Fill(kernels); }
#if HWY_ONCE
// Double serves gradient checks, one lane at a time: the baseline is enough.
void FillProductsDouble(ProductKernels<double>& kernels) { Fill(kernels); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillProductsFloat);

void FillProducts(ProductKernels<float>& kernels) { HWY_DYNAMIC_DISPATCH(FillProductsFloat)(kernels); }
void FillProducts(ProductKernels<double>& kernels) { HWY_STATIC_DISPATCH(FillProductsDouble)(kernels); }

}  // namespace penstock::cpu
#endif  // HWY_ONCE
