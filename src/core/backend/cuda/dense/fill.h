#pragma once

#include <limits>

#include "backend/cuda/dense/dense.h"

/// The parameters of the kernels of dense cells, filled in from a call.
namespace penstock::cuda::fill {

#include "backend/cuda/kernels/dense/arguments.h"

inline DenseTensor dense_tensor(const DeviceSequence& sequence, Index bytes) {
  return {device_pointer<char>(sequence.data), sequence.row_stride * bytes, sequence.step_stride * bytes};
}

/// A tensor over all positions without gaps.
inline DenseTensor gapless_tensor(DeviceAddress address, const DenseBatch& batch, Index position_bytes) {
  if (batch.time_first) return {device_pointer<char>(address), position_bytes, batch.rows * position_bytes};
  return {device_pointer<char>(address), batch.steps * position_bytes, position_bytes};
}

/// A tape, or a part of one, which has no gaps between the positions of the whole sequence.
inline DenseTensor tape_tensor(DeviceAddress address, const DenseBatch& batch, Index position_bytes) {
  DenseBatch whole = batch;
  if (batch.tape_steps > 0) whole.steps = batch.tape_steps;
  return gapless_tensor(address, whole, position_bytes);
}

/// `order`: rows by decreasing length, or 0.
inline DenseRows dense_rows(const DenseBatch& batch, DeviceAddress order) {
  DenseRows rows{};
  rows.lengths = device_pointer<const long long>(batch.lengths);
  rows.cu_seqlens = device_pointer<const long long>(batch.cu_seqlens);
  rows.order = device_pointer<const int>(order);
  rows.reset = device_pointer<const unsigned char>(batch.reset);
  rows.reset_row_stride = batch.reset_row_stride, rows.reset_step_stride = batch.reset_step_stride;
  rows.restarts = device_pointer<const float>(batch.restarts.data);
  rows.restart_state = batch.restarts.state;
  rows.restart_row = batch.restarts.row, rows.restart_step = batch.restarts.step;
  rows.steps = batch.steps;
  rows.rows = static_cast<int>(batch.rows);
  rows.most = std::numeric_limits<int>::max();
  return rows;
}

}  // namespace penstock::cuda::fill
