#pragma once

#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock::io {

/// values [rows, columns] -> [columns, rows]: ONNX multiplies by matrices from the right.
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
