#pragma once

#include <cstddef>
#include <string_view>

#include "backend/cpu/custom/custom.h"
#include "backend/cpu/kernels.h"

/// The kernels of one step of one row, for every instruction set that was compiled: those of the full library's
/// streams, from the same text, so that both have the same bits.
namespace penstock::runtime {

/// What a step needs to know of a cell.
struct CellForm {
  std::string_view name;
  int index = -1;  ///< In the list of cells; -1: a custom cell.
  int gates = 0, states = 0;
  bool scan = false;
  int saved = 0, phases = 1;  ///< Of dense cells.
};

/// Returns the built-in cell of that name, or null.
const CellForm* find_cell_form(std::string_view name);

/// The layer of one cell, one step at a time.
struct LayerKernels {
  /// Floats of the packed weights.
  std::size_t (*panels)(Index input, Index hidden, Index heads) = nullptr;
  void (*pack)(Index input, Index hidden, Index heads, const cpu::StepWeights<float>& weights, float* packed) = nullptr;
  void (*step)(const cpu::CellStep<float>& job) = nullptr;
};

struct StepKernels {
  void (*fill_cell)(int cell, LayerKernels& layer) = nullptr;
  void (*fill_custom)(int gates, bool scan, LayerKernels& layer) = nullptr;
  /// As cpu::ProductKernels and cpu::ElementKernels have them.
  void (*rows_times_rows)(Index begin, Index end, Index n, Index k, const float* a, Index a_stride, const float* b,
                          Index b_stride, float beta, float* c, Index c_stride) = nullptr;
  void (*rows_times_columns)(Index begin, Index end, Index n, Index k, const float* a, Index a_row, Index a_col,
                             const float* b, Index b_stride, float beta, float* c, Index c_stride) = nullptr;
  void (*silu_gate)(Index inner, const float* gv, float* y) = nullptr;
  float (*rms_norm)(Index width, float epsilon, const float* x, const float* gain, float* y) = nullptr;
};

/// Returns the kernels of the instruction set in use.
const StepKernels* step_kernels();

}  // namespace penstock::runtime
