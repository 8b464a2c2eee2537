#include "backend/cuda/product/few_rows_product.h"

#include <algorithm>

#include "backend/cuda/driver/range.h"
#include "backend/cuda/scan/scan.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

#include "backend/cuda/kernels/product/few_rows_product_arguments.h"

constexpr int kFewRowsThreads = 128;  // of a block: small, so that a small product has blocks for many multiprocessors

/// Neighbouring values along k that one access of a thread can take.
int few_rows_vector(const ProductShape& shape) {
  const int size = plan::size_of(shape.storage);
  const int bytes = common_alignment(
      16, {shape.a_alignment, shape.b_alignment, shape.a_stride * size, shape.b_stride * size, shape.k * size});
  return std::max(1, bytes / size);
}

/// Threads that share an output: no more than have something to read.
int few_rows_lanes(const ProductShape& shape) {
  const Index vectors = shape.k / few_rows_vector(shape);
  int lanes = 32;
  while (lanes > 1 && lanes / 2 >= vectors) lanes /= 2;
  return lanes;
}

}  // namespace

bool FewRowsProduct::fits(const ProductShape& shape) {
  return shape.m <= most_rows && !shape.a_transposed && shape.b_transposed && shape.epilogue != Epilogue::sum_columns &&
         !shape.tf32 && !shape.exact;
}

KernelSource few_rows_source(const ProductShape& shape) {
  KernelSource source;
  source.entry = "FewRowsProduct";
  source.file = "backend/cuda/kernels/product/few_rows_product.cuh";
  source.early = true;
  source.constants = {{"using Storage", storage_type(shape.storage)},
                      {"using Result", storage_type(shape.result)},
                      {"constexpr int kRows", shape.m},
                      {"constexpr int kVector", few_rows_vector(shape)},
                      {"constexpr int kLanes", few_rows_lanes(shape)},
                      {"constexpr int kThreads", kFewRowsThreads}};
  source.plan = fmt::format("a product of {} rows: {} threads an output", shape.m, few_rows_lanes(shape));
  return source;
}

FewRowsProduct::FewRowsProduct(Device& device, const ProductShape& shape) : shape_(shape) {
  require(fits(shape), "this is no product of at most {} rows with B transposed", most_rows);
  require(shape.m >= 1 && shape.n >= 1 && shape.k >= 1, "a product must have sizes of at least 1, not {} x {} x {}",
          shape.m, shape.n, shape.k);
  kernel_ = &Kernel::load(device, few_rows_source(shape));
}

void FewRowsProduct::run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress,
                         StreamHandle stream, bool add) const {
  const Range range("penstock GEMM of few rows");
  require(!add, "a product of few rows replaces what D holds");
  FewRowsArguments arguments{};
  arguments.a = device_pointer<const char>(a);
  arguments.b = device_pointer<const char>(b);
  arguments.bias = shape_.epilogue == Epilogue::add_bias ? device_pointer<const char>(vector) : nullptr;
  arguments.d = device_pointer<char>(d);
  arguments.a_stride = shape_.a_stride, arguments.b_stride = shape_.b_stride, arguments.d_stride = shape_.d_stride;
  arguments.n = static_cast<int>(shape_.n), arguments.k = static_cast<int>(shape_.k);
  const Index outputs = kFewRowsThreads / few_rows_lanes(shape_);
  kernel_->launch(static_cast<unsigned>((shape_.n + outputs - 1) / outputs), kFewRowsThreads, arguments, stream);
}

}  // namespace penstock::cuda
