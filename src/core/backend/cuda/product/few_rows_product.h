#pragma once

#include "backend/cuda/driver/blas.h"
#include "backend/cuda/driver/kernel.h"

namespace penstock::cuda {

/// A product of a few rows, as steps of a few streams have them: reading B is all it takes, and a launch of a large
/// product takes longer than that. Running allocates nothing and can be captured.
class FewRowsProduct {
 public:
  static constexpr Index most_rows = 8;

  /// Returns whether this kernel computes the product: A of few rows, not transposed, B transposed, at most a bias.
  static bool fits(const ProductShape& shape);

  FewRowsProduct(Device& device, const ProductShape& shape);
  std::size_t workspace_bytes() const { return 0; }
  /// Runs like Product::run(), but adds nothing to D.
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false) const;

 private:
  ProductShape shape_;
  const Kernel* kernel_;
};

KernelSource few_rows_source(const ProductShape& shape);

}  // namespace penstock::cuda
