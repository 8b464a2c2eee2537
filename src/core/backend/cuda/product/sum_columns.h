#pragma once

#include "backend/cuda/driver/kernel.h"

namespace penstock::cuda {

/// The sums of a matrix' columns over its rows: the gradient of a bias, where cuBLASLt does not make it as the epilogue
/// of a product.
struct ColumnSums {
  plan::Storage storage = plan::Storage::f32;  ///< Storage of the matrix [rows, columns]
  plan::Storage result = plan::Storage::f32;
  Index rows = 1, columns = 1;
  Index stride = 0;   ///< Values from row to row; 0: `columns`.
  int alignment = 2;  ///< Bytes that the matrix and its rows are multiples of.
};

/// Summed in a fixed order, in float. Running allocates nothing and can be captured.
class SumColumnsExecutable {
 public:
  SumColumnsExecutable(Device& device, const ColumnSums& sums);
  /// Zero before its first use.
  std::size_t workspace_bytes() const;
  void run(DeviceAddress matrix, DeviceAddress result, DeviceAddress workspace, StreamHandle stream) const;

 private:
  ColumnSums sums_;
  Index tiles_ = 1, splits_ = 1;
  const Kernel* kernel_ = nullptr;
};

KernelSource sum_columns_source(const ColumnSums& sums);

}  // namespace penstock::cuda
