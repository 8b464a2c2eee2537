#include "backend/cuda/product/matrix_product.h"

namespace penstock::cuda {

MatrixProduct::MatrixProduct(Device& device, const ProductShape& shape) {
  if (FewRowsProduct::fits(shape)) {
    engine_ = FewRowsProduct(device, shape);
  } else if (in_own_kernels(device.model(), shape)) {
    engine_ = FloatProduct(device, shape);
  } else {
    engine_ = Product(device, shape);
  }
}

std::size_t MatrixProduct::workspace_bytes() const {
  return std::visit([](const auto& engine) { return engine.workspace_bytes(); }, engine_);
}

void MatrixProduct::run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector,
                        DeviceAddress workspace, StreamHandle stream, bool add) const {
  std::visit([&](const auto& engine) { engine.run(a, b, d, vector, workspace, stream, add); }, engine_);
}

}  // namespace penstock::cuda
