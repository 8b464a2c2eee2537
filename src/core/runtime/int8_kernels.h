#pragma once

#include "backend/cpu/kernels.h"

/// Steps over weights of int8: the bits of the full library's panels, from rows as the file has them. Only programs
/// that open such models link these kernels.
namespace penstock::runtime {

/// The gates of a cell, from sums of the input [G, H] and of the state [heads, G, D].
struct Int8Gates {
  using Run = void (*)(const cpu::CellStep<float>& job, const float* of_input, const float* of_state);
  Run run[2] = {nullptr, nullptr};  ///< Of each phase.
  int first = 0;                    ///< Gates of the first phase.
};

struct Int8Kernels {
  void (*fill_cell)(int cell, Int8Gates& gates) = nullptr;
  /// Bytes of an operand of `count` inputs.
  Index (*operand_bytes)(Index count) = nullptr;
  /// y [rows] = bias + matrix [rows, columns] x. `bias` may be null; `operand` is scratch of operand_bytes(columns).
  void (*product)(const cpu::Int8Matrix& matrix, Index rows, Index columns, const float* x, std::int8_t* operand,
                  const float* bias, float* y) = nullptr;
};

/// Returns the kernels of the instruction set in use.
const Int8Kernels* int8_kernels();

}  // namespace penstock::runtime
