#pragma once

#include <span>
#include <vector>

#include "penstock/types.h"

/// Transposition of matrices for the export to ONNX.
namespace penstock::io {

/// Returns values [rows, columns] as [columns, rows]. ONNX multiplies by matrices from the right.
inline std::vector<float> transposed(std::span<const float> values, Index rows, Index columns) {
  std::vector<float> result(values.size());
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      result[static_cast<std::size_t>(j * rows + i)] = values[static_cast<std::size_t>(i * columns + j)];
    }
  }
  return result;
}

}  // namespace penstock::io
