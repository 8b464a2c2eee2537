// The forward engines over weights of int8.

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_int8.inl"

#if PENSTOCK_INT8_TILES
#include "backend/cpu/product/amx_panels.inl"
#endif

#include "backend/cpu/dense/input.inl"

#include "backend/cpu/dense/forward.inl"

#if PENSTOCK_INT8_TILES
#include "backend/cpu/dense/tiles.inl"
#endif

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/dense/forward_fill.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/scan/step.inl"

#include "backend/cpu/scan/layer.inl"

#if PENSTOCK_INT8_TILES
#include "backend/cpu/scan/tiles.inl"
#endif

/// A product by itself, as the engine of scan cells has them: the sums of one gate, which are written and go no
/// further.
struct Product {
  static constexpr int gates = 1;
};

inline void StoreProduct(const ScanLayer<float>&, const ScanSite<float>* site, int rows, Index channel, Index count,
                         const Simd (*sums)[1]) {
  for (int m = 0; m < rows; ++m) Lanes<float>::store(sums[m][0], site[m].wx + channel, count);
}

inline void RunProduct(const ScanLayer<float>& job, const ScanLayerPart& part) {
  RunSitesOfPart<Int8Weight, Product::gates>(job, part, &StoreProduct);
}

inline void FillInt8Engines(int cell, CellKernels<float>& kernels) {
  if (cell == kInt8Product) {
    FillRoundedInputs<Int8Weight>(kernels);
    kernels.lanes = Simd::lanes;
    kernels.scan_panels = &ScanPanels<Int8Weight, Product>;
    kernels.pack_scan = &PackScan<Int8Weight, Product>;
    kernels.scan_layer = &RunProduct;
  }
  FillDenseForwardAs<Int8Weight>(cell, kernels);
  FillScanLayersAs<Int8Weight>(cell, kernels);
}
