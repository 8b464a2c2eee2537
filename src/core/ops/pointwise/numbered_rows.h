#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// Rows of floats and an array of more rows: number i of `numbers` i32 [B] says which of them corresponds to row i; a
/// negative one says that none does. For GPUs: on a CPU, sessions copy their states themselves.
struct NumberedRows {
  Index width = 1;                ///< W
  Index stride = 1;               ///< Floats from row to row of the array, at least W.
  int alignment = sizeof(float);  ///< Both addresses are multiples of this number of bytes, as the stride is.
};

struct NumberedRowsOperand {
  enum : int { array, numbers, rows };
};

/// Copies `rows` [B, W] = rows of `array`. Rows without a number stay as they are.
Op gather_rows(const NumberedRows& shape);
/// Copies rows of `array` = `rows` [B, W]. Numbers that are not negative must differ.
Op scatter_rows(const NumberedRows& shape);

}  // namespace penstock::ops
