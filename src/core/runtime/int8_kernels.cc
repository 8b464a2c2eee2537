// The kernels of int8 for every instruction set, chosen when a model is opened.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/int8_kernels.cc"

#include "runtime/int8_kernels.h"

#include "backend/cpu/every_target.inl"

#include "backend/cpu/dispatch_target.h"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/dense/panel_int8.inl"

#include "backend/cpu/int8_rows.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/dense/step.inl"

using Vectors = LanesOf<Int8Weight>;

/// Gates [first_gate, first_gate + gate_count) of all units.
template <class Cell, int first_gate, int gate_count>
void DenseGates(const CellStep<float>& job, const float* of_input, const float* of_state) {
  using V = GatesOf<Int8Weight>;
  constexpr int G = Cell::gates;
  const Index size = job.head_size;
  const StepPointwise<Int8Weight, Cell> pointwise{job, true};
  for (Index head = 0; head < job.heads; ++head) {
    for (Index unit = 0; unit < size; unit += Vectors::lanes) {
      const Index count = std::min<Index>(Vectors::lanes, size - unit);
      V wx[G], rh[G];
      for (int g = 0; g < G; ++g) wx[g] = rh[g] = V(0);
      for (int g = first_gate; g < first_gate + gate_count; ++g) {
        wx[g] = Vectors::load(of_input + g * job.hidden + head * size + unit, count);
        rh[g] = Vectors::load(of_state + (head * G + g) * size + unit, count);
      }
      pointwise.template gates<(first_gate > 0)>(head * size + unit, count, wx, rh);
    }
  }
}

template <class Cell>
void ScanGates(const CellStep<float>& job, const float* of_input, const float*) {
  using V = typename Vectors::V;
  for (Index channel = 0; channel < job.hidden; channel += Vectors::lanes) {
    const Index count = std::min<Index>(Vectors::lanes, job.hidden - channel);
    V gates[Cell::gates];
    for (int g = 0; g < Cell::gates; ++g) gates[g] = Vectors::load(of_input + g * job.hidden + channel, count);
    const V h = StepAt<Cell>(job, {channel, count}, gates).advance(Vectors::load(job.state[0] + channel, count));
    Vectors::store(h, job.y + channel, count);
    Vectors::store(h, job.state[0] + channel, count);
  }
}

void FillInt8Gates(int cell, runtime::Int8Gates& gates) {
  WithDenseCell(cell, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    constexpr int first = FirstGroup<Cell>(), rest = Cell::gates - first;
    gates.first = first;
    gates.run[0] = &DenseGates<Cell, 0, first>;
    if constexpr (rest > 0) gates.run[1] = &DenseGates<Cell, first, rest>;
  });
  WithScanCell(cell, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    gates.first = Cell::gates;
    gates.run[0] = &ScanGates<Cell>;
  });
}

void Int8Product(const Int8Matrix& matrix, Index rows, Index columns, const float* x, std::int8_t* operand,
                 const float* bias, float* y) {
  RoundRow(x, columns, OperandInputs<Int8Weight>(columns), operand);
  Int8RowsTimesOperand(matrix, rows, columns, operand, bias, y);
}

}  // namespace

const runtime::Int8Kernels* Int8Table() {
  static constexpr runtime::Int8Kernels kernels = {&FillInt8Gates, &OperandInputs<Int8Weight>, &Int8Product};
  return &kernels;
}

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

PENSTOCK_EXPORT(Int8Table);

}  // namespace penstock::cpu

namespace penstock::runtime {

const Int8Kernels* int8_kernels() {
  using cpu::Int8TableTable;
  return PENSTOCK_DISPATCH(Int8Table)();
}

}  // namespace penstock::runtime
#endif  // HWY_ONCE
