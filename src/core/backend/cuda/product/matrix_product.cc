#include "backend/cuda/product/matrix_product.h"

#include <utility>

namespace penstock::cuda {
namespace {

constexpr Index kPiece = 16;  // bytes

Index whole(Index width, plan::Storage storage) {
  const Index values = kPiece / plan::size_of(storage);
  return (width + values - 1) / values * values;
}

/// Returns whether a product gains more by aligned rows than their copies take. In microseconds, measured on an H200;
/// constants, since the order of sums may depend on the answer. `bytes`: of the copies.
bool gains(const ProductShape& shape, double bytes, int copies) {
  constexpr double saved = 3.0 / 700e6;  // for each multiplication
  constexpr double copied = 1e-6, launch = 7;
  const double products = static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return saved * products > copied * bytes + launch * copies;
}

CopyRows rows_between(plan::Storage storage, Index rows, Index width, Index from, Index to, int alignment) {
  return {.positions = {.rows = rows},
          .width = width,
          .from_stride = from,
          .to_stride = to,
          .from = storage,
          .to = storage,
          .alignment = common_alignment(kPiece, {alignment})};
}

}  // namespace

AlignedRows::AlignedRows(Device& device, const CopyRows& to_copy, Index rows_of_copy, bool writes)
    : bytes_(static_cast<std::size_t>(rows_of_copy * to_copy.to_stride * plan::size_of(to_copy.to) + 255) / 256 * 256),
      clear_(device, rows_of_copy * to_copy.to_stride, to_copy.to),
      copy_(device, to_copy) {
  if (!writes) return;
  CopyRows back = to_copy;
  std::swap(back.from_stride, back.to_stride);
  write_.emplace(device, back);
}

void AlignedRows::copy(DeviceAddress rows, DeviceAddress copy, StreamHandle stream) const {
  clear_.run(copy, 0, stream);
  copy_.run({.from = rows, .to = copy}, stream);
}

void AlignedRows::write(DeviceAddress copy, DeviceAddress rows, StreamHandle stream) const {
  write_->run({.from = copy, .to = rows}, stream);
}

ProductShape MatrixProduct::align(Device& device, const ProductShape& shape) {
  const plan::Storage storage = shape.storage;
  if (storage == plan::Storage::f32 || shape.exact || shape.epilogue == Epilogue::sum_columns) return shape;
  const Index a_rows = shape.a_transposed ? shape.k : shape.m, a_width = shape.a_transposed ? shape.m : shape.k;
  const Index b_rows = shape.b_transposed ? shape.n : shape.k, b_width = shape.b_transposed ? shape.k : shape.n;
  const auto narrow = [&](Index stride, int alignment) {
    return stride * plan::size_of(storage) % kPiece != 0 || alignment < kPiece;
  };
  const bool copies_a = narrow(shape.a_stride, shape.a_alignment), odd_n = shape.n != whole(shape.n, storage);
  const bool copies_b = narrow(shape.b_stride, shape.b_alignment) || (shape.b_transposed && odd_n);
  // Zeros behind the rows of both factors make the summed axis whole, behind those of one, or rows of zeros, a side of
  // D.
  const bool pads_k = copies_a && copies_b && !shape.a_transposed && shape.b_transposed;
  const bool pads_m = copies_a && shape.a_transposed;
  ProductShape whole_shape = shape;
  if (pads_k) whole_shape.k = whole(shape.k, storage);
  if (pads_m) whole_shape.m = whole(shape.m, storage);
  if (copies_b) whole_shape.n = whole(shape.n, storage);
  const bool copies_d = whole_shape.m != shape.m || whole_shape.n != shape.n;
  const bool helps = (!odd_n || copies_b) && (copies_a || copies_b);
  if (!helps || (copies_d && shape.epilogue != Epilogue::nothing)) return shape;
  const double bytes = static_cast<double>((copies_a ? a_rows * a_width : 0) + (copies_b ? b_rows * b_width : 0)) *
                           plan::size_of(storage) +
                       static_cast<double>(copies_d ? shape.m * shape.n : 0) * plan::size_of(shape.result);
  if (!gains(shape, bytes, copies_a + copies_b + copies_d)) return shape;
  if (copies_a) {
    whole_shape.a_stride = whole(a_width, storage), whole_shape.a_alignment = kPiece;
    a_.emplace(device, rows_between(storage, a_rows, a_width, shape.a_stride, whole_shape.a_stride, shape.a_alignment),
               a_rows, false);
  }
  if (copies_b) {
    whole_shape.b_stride = whole(b_width, storage), whole_shape.b_alignment = kPiece;
    b_.emplace(device, rows_between(storage, b_rows, b_width, shape.b_stride, whole_shape.b_stride, shape.b_alignment),
               shape.b_transposed ? whole_shape.n : b_rows, false);
  }
  if (copies_d) {
    whole_shape.d_stride = whole_shape.n, whole_shape.d_alignment = kPiece;
    d_.emplace(device,
               rows_between(shape.result, shape.m, shape.n, shape.d_stride, whole_shape.d_stride, shape.d_alignment),
               whole_shape.m, true);
  }
  return whole_shape;
}

MatrixProduct::MatrixProduct(Device& device, const ProductShape& shape) {
  if (FewRowsProduct::fits(shape)) {
    engine_ = FewRowsProduct(device, shape);
  } else if (in_own_kernels(device.model(), shape)) {
    engine_ = FloatProduct(device, shape);
  } else {
    engine_ = Product(device, align(device, shape));
  }
}

std::size_t MatrixProduct::engine_bytes() const {
  return (std::visit([](const auto& engine) { return engine.workspace_bytes(); }, engine_) + 255) / 256 * 256;
}

std::size_t MatrixProduct::workspace_bytes() const {
  return engine_bytes() + (a_ ? a_->bytes() : 0) + (b_ ? b_->bytes() : 0) + (d_ ? d_->bytes() : 0);
}

void MatrixProduct::run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector,
                        DeviceAddress workspace, StreamHandle stream, bool add) const {
  DeviceAddress place = workspace + engine_bytes();
  const auto copied = [&](const std::optional<AlignedRows>& rows, DeviceAddress from, bool values) {
    if (!rows) return from;
    const DeviceAddress to = place;
    place += rows->bytes();
    if (values) rows->copy(from, to, stream);
    return to;
  };
  a = copied(a_, a, true), b = copied(b_, b, true);
  const DeviceAddress result = copied(d_, d, add);
  std::visit([&](const auto& engine) { engine.run(a, b, result, vector, workspace, stream, add); }, engine_);
  if (d_) d_->write(result, d, stream);
}

}  // namespace penstock::cuda
