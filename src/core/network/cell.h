#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/cpu/custom/custom.h"
#include "network/status.h"

namespace penstock::network {

/// A cell as Recurrent nodes step it, a row at a time.
struct Cell {
  Index gates = 0, states = 0;
  bool scan = false;
  Index learnt = 0;                                      ///< Vectors behind the gates of bias_ih, of custom cells.
  std::size_t workspace = 0;                             ///< Floats besides the states that a step of one row needs.
  std::shared_ptr<const custom::DerivedCell> equations;  ///< Of a custom cell.

  /// Floats of packed weights.
  std::size_t (*panels)(Index input, Index hidden, Index heads) = nullptr;
  void (*pack)(Index input, Index hidden, Index heads, const cpu::StepWeights<float>& weights, float* packed) = nullptr;
  /// Takes a cpu::CustomStep if the cell has equations.
  void (*step)(const cpu::CellStep<float>& job) = nullptr;
};

/// Finds the built-in cell of that name, or reads a custom cell's JSON. There are two of this function: that of the
/// full library (library_cell.cc), and the C runtime's, which has neither its reader of JSON nor its exceptions.
Status find_cell(std::string_view name, Index hidden, Index heads, Cell& cell);

}  // namespace penstock::network
