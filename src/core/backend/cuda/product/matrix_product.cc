#include "backend/cuda/product/matrix_product.h"

#include <utility>

#include "backend/cuda/driver/driver.h"

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

/// `zeros`: behind each row, up to a multiple of 16 bytes.
CopyRows rows_between(plan::Storage storage, Index rows, Index width, Index from, Index to, int alignment,
                      bool zeros = false) {
  return {.positions = {.rows = rows},
          .width = zeros ? whole(width, storage) : width,
          .copied = width,
          .from_stride = from,
          .to_stride = to,
          .from = storage,
          .to = storage,
          .alignment = common_alignment(kPiece, {alignment})};
}

}  // namespace

Index product_pitch(Index width, plan::Storage storage) {
  constexpr Index line = 64, wide = 8 * line;  // values
  if (storage == plan::Storage::f32) return width;
  return width >= wide ? (width + line - 1) / line * line : whole(width, storage);
}

void clear_padding(DeviceAddress matrix, Index rows, Index width, plan::Storage storage, StreamHandle stream) {
  const Index size = plan::size_of(storage), padding = whole(width, storage) - width;
  if (padding == 0) return;
  check(driver().fill_rows(matrix + static_cast<DeviceAddress>(width * size),
                           static_cast<std::size_t>(product_pitch(width, storage) * size), 0,
                           static_cast<std::size_t>(padding), static_cast<std::size_t>(rows), stream),
        "clearing what follows the rows of a matrix");
}

AlignedRows::AlignedRows(Device& device, const CopyRows& to_copy, Index rows_of_copy, bool writes)
    : to_copy_(to_copy), rows_of_copy_(rows_of_copy), copy_(device, to_copy) {
  if (!writes) return;
  CopyRows back = to_copy;
  std::swap(back.from_stride, back.to_stride);
  write_.emplace(device, back);
}

std::size_t AlignedRows::bytes_of(Index rows) const {
  return static_cast<std::size_t>(rows * to_copy_.to_stride * plan::size_of(to_copy_.to));
}

std::size_t AlignedRows::bytes() const { return padded(bytes_of(rows_of_copy_)); }

void AlignedRows::copy(DeviceAddress rows, DeviceAddress copy, StreamHandle stream) const {
  const Index copied = to_copy_.positions.rows;
  if (rows_of_copy_ > copied) {
    check(driver().fill_bytes(copy + bytes_of(copied), 0, bytes_of(rows_of_copy_ - copied), stream),
          "clearing rows behind a copy");
  }
  copy_.run({.from = rows, .to = copy}, stream);
}

void AlignedRows::write(DeviceAddress copy, DeviceAddress rows, StreamHandle stream) const {
  write_->run({.from = copy, .to = rows}, stream);
}

// A side becomes whole, a multiple of 16 bytes of values: m by what follows the rows of a transposed A, n by what
// follows those of B or by more of them, whatever values these have. The summed side takes zeros in both factors.
ProductShape MatrixProduct::align(Device& device, const ProductShape& shape) {
  const plan::Storage storage = shape.storage;
  if (storage == plan::Storage::f32 || shape.exact || shape.epilogue == Epilogue::sum_columns) return shape;
  const auto odd = [&](Index side) { return side != whole(side, storage); };
  const auto narrow = [&](Index stride, int alignment) { return odd(stride) || alignment < kPiece; };
  const bool pads_m = shape.a_transposed && odd(shape.m), pads_n = odd(shape.n);
  const bool pads_k = !shape.a_transposed && odd(shape.k);
  const bool copies_a = narrow(shape.a_stride, shape.a_alignment) || (pads_k && !shape.a_padded);
  const bool copies_b = narrow(shape.b_stride, shape.b_alignment) || pads_k || (pads_n && shape.b_transposed);
  const bool copies_d = pads_m || (pads_n && !shape.d_padded);
  const bool changes_d = pads_m || pads_n;
  if (!(copies_a || copies_b || changes_d) || (changes_d && shape.epilogue != Epilogue::nothing)) return shape;
  const Index a_rows = shape.a_transposed ? shape.k : shape.m, a_width = shape.a_transposed ? shape.m : shape.k;
  const Index b_rows = shape.b_transposed ? shape.n : shape.k, b_width = shape.b_transposed ? shape.k : shape.n;
  const double bytes = static_cast<double>((copies_a ? a_rows * a_width : 0) + (copies_b ? b_rows * b_width : 0)) *
                           plan::size_of(storage) +
                       static_cast<double>(copies_d ? shape.m * shape.n : 0) * plan::size_of(shape.result);
  if (!gains(shape, bytes, copies_a + copies_b + copies_d)) return shape;
  ProductShape aligned = shape;
  if (pads_m) aligned.m = whole(shape.m, storage);
  if (pads_n) aligned.n = whole(shape.n, storage);
  if (pads_k) aligned.k = whole(shape.k, storage);
  if (copies_a) {
    aligned.a_stride = product_pitch(a_width, storage), aligned.a_alignment = kPiece;
    a_.emplace(device,
               rows_between(storage, a_rows, a_width, shape.a_stride, aligned.a_stride, shape.a_alignment, pads_k),
               a_rows, false);
  }
  if (copies_b) {
    aligned.b_stride = product_pitch(b_width, storage), aligned.b_alignment = kPiece;
    b_.emplace(device,
               rows_between(storage, b_rows, b_width, shape.b_stride, aligned.b_stride, shape.b_alignment,
                            pads_k && shape.b_transposed),
               shape.b_transposed ? aligned.n : aligned.k, false);
  }
  if (copies_d) {
    aligned.d_stride = aligned.n, aligned.d_alignment = kPiece;
    d_.emplace(device,
               rows_between(shape.result, shape.m, shape.n, shape.d_stride, aligned.d_stride, shape.d_alignment),
               aligned.m, true);
  }
  return aligned;
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
