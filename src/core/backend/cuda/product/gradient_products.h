#pragma once

#include <optional>

#include "backend/cuda/product/matrix_product.h"
#include "backend/cuda/product/sum_columns.h"

namespace penstock::cuda {

/// Gradients of y = x W^T + b over many positions, from dy [P, N]: dW [N, K] = dy^T x, db [N] = column
/// sums of dy, dx [P, K] = dy W.
struct GradientShape {
  plan::Storage storage = plan::Storage::bf16;   ///< Storage of x, W, dy and dx
  plan::Storage gradients = plan::Storage::f32;  ///< Storage of dW and db: f32, or `storage`
  Index positions = 1;                           ///< P
  Index inputs = 1, outputs = 1;                 ///< K, N
  Index x_stride = 1;                            ///< Elements from position to position of x and dx
  /// Elements from position to position of dy; 0: N. Where they are more, zeros follow, up to a multiple of 16 bytes.
  Index dy_stride = 0;
  bool bias = true;
  bool dx = true;  ///< It is wanted.
  bool tf32 = false;
  /// Bytes that the addresses are multiples of.
  int dy_alignment = 16, x_alignment = 16, weight_alignment = 16, dweight_alignment = 16, dx_alignment = 16;
};

/// The product that makes dx.
ProductShape input_gradient_product(const GradientShape& shape);

struct GradientCall {
  DeviceAddress x = 0, weight = 0, dy = 0;
  DeviceAddress dweight = 0, dbias = 0;  ///< Written; dbias 0 without a bias
  DeviceAddress dx = 0;                  ///< Written, or 0 where it is not wanted
  bool add_dx = false;                   ///< Added to what dx holds, instead of replacing it
};

/// Running allocates nothing and can be captured. Not safe for two calls at once.
class GradientProducts {
 public:
  GradientProducts(Device& device, const GradientShape& shape);
  /// Zero before its first use, and left alone by everybody else.
  std::size_t sums_bytes() const { return bias_sums_ ? bias_sums_->workspace_bytes() : 0; }
  /// Bytes of workspace of the products; any content.
  std::size_t products_bytes() const;
  void run(const GradientCall& call, DeviceAddress sums, DeviceAddress products, StreamHandle stream) const;

 private:
  bool wants_dx_;
  std::optional<SumColumnsExecutable> bias_sums_;  // where the product does not make them
  MatrixProduct weight_product_, input_product_;
};

/// Bytes up to 256 that an address is a multiple of.
int alignment_of(DeviceAddress address);

}  // namespace penstock::cuda
