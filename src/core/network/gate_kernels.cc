// The gates of dense cells for every instruction set, from sums that are there.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/gate_kernels.cc"

#include "network/kernels.h"

#include "custom/cell.h"

#include "backend/cpu/every_target.inl"

#include "backend/cpu/dispatch_target.h"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::network::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

#include "backend/cpu/custom/evaluate.inl"

#include "network/row_steps.inl"

using V = Simd;
using L = Lanes<float>;

template <class Cell>
struct Unit {
  Index at, count;
  V wx[Cell::gates], rh[Cell::gates], before[Cell::states], after[Cell::states], saved[Cell::saved];

  HWY_INLINE Unit(const GateStep& job, Index unit) : at(unit), count(std::min<Index>(V::lanes, job.hidden - unit)) {
    static_assert(Cell::states <= static_cast<int>(std::size(GateStep().state)));
    for (int g = 0; g < Cell::gates; ++g) {
      wx[g] = L::load(job.wx + g * job.hidden + unit, count);
      rh[g] = L::load(job.rh + g * job.hidden + unit, count);
    }
    for (int k = 0; k < Cell::states; ++k) before[k] = L::load(job.state[k] + unit, count);
  }
  HWY_INLINE void finish(const GateStep& job) const {
    L::store(after[0], job.y + at, count);
    for (int k = 0; k < Cell::states; ++k) L::store(after[k], job.state[k] + at, count);
  }
};

template <class Cell>
void RunGates(const GateStep& job) {
  for (Index at = 0; at < job.hidden; at += V::lanes) {
    Unit<Cell> unit(job, at);
    if constexpr (Cell::phases == 1) {
      Cell::forward(unit.wx, unit.rh, unit.before, unit.after, unit.saved);
    } else {
      for (int g = 0; g < Cell::first_gates; ++g) unit.saved[g] = L::load(job.kept + g * job.hidden + at, unit.count);
      Cell::forward_second(unit.wx, unit.rh, unit.before, unit.after, unit.saved);
    }
    unit.finish(job);
  }
}

template <class Cell>
void RunFirstGates(const GateStep& job) {
  for (Index at = 0; at < job.hidden; at += V::lanes) {
    Unit<Cell> unit(job, at);
    V operand;
    Cell::forward_first(unit.wx, unit.rh, unit.before, operand, unit.saved);
    L::store(operand, job.operand + at, unit.count);
    for (int g = 0; g < Cell::first_gates; ++g) L::store(unit.saved[g], job.kept + g * job.hidden + at, unit.count);
  }
}

template <class Cell>
void TakeIf(std::string_view name, CellGates& found) {
  if (name != Cell::name) return;
  found = {Cell::gates, Cell::states, 0, nullptr, &RunGates<Cell>, {}};
  if constexpr (Cell::phases == 2) {
    found.first = Cell::first_gates, found.run_first = &RunFirstGates<Cell>;
  }
  // Other cells are rare, and the C runtime has to be small.
  if constexpr (HWY_TARGET != HWY_SCALAR && (std::is_same_v<Cell, Gru> || std::is_same_v<Cell, Lstm>)) {
    found.row = {&PaddedUnits, &PackRow<Cell::gates>, &RunRow<Cell>};
  }
}

CellGates GatesOf(std::string_view name) {
  CellGates found;
#define PENSTOCK_CALL(Cell) TakeIf<Cell>(name, found);
  PENSTOCK_DENSE_CELLS(PENSTOCK_CALL)
#undef PENSTOCK_CALL
  return found;
}

/// The equations of a custom cell, a tile of units after the other.
void RunCustomGates(const GateStep& job) {
  const Program& program = job.equations->forward;
  TileSlots<V> slots(program);
  for (Index first = 0; first < job.hidden; first += slots.together * V::lanes) {
    const auto vectors =
        static_cast<int>(std::min<Index>(slots.together, (job.hidden - first + V::lanes - 1) / V::lanes));
    const auto each = [&](const auto& vector) HWY_ATTR {
      for (int j = 0; j < vectors; ++j) {
        const Index unit = first + j * V::lanes;
        vector(j, unit, std::min<Index>(V::lanes, job.hidden - unit));
      }
    };
    for (const Program::Leaf& leaf : program.leaves) {
      const Index row = leaf.index * job.hidden;
      const float* const from = leaf.operation == Operation::input       ? job.wx + row
                                : leaf.operation == Operation::recurrent ? job.rh + row
                                : leaf.operation == Operation::state     ? job.state[leaf.index]
                                                                         : job.learnt + row;
      each([&](int j, Index unit, Index count) HWY_ATTR { slots.at(leaf.slot)[j] = L::load(from + unit, count); });
    }
    RunProgram(program, vectors, slots);
    each([&](int j, Index unit, Index count) HWY_ATTR {
      L::store(slots.at(program.results[0])[j], job.y + unit, count);
      for (std::size_t k = 0; k < program.results.size(); ++k) {
        L::store(slots.at(program.results[k])[j], job.state[k] + unit, count);
      }
    });
  }
}

}  // namespace

void FillGateKernels(Kernels& kernels) {
  kernels.gates = &GatesOf;
  kernels.custom_gates = &RunCustomGates;
}

}  // namespace penstock::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::network {

PENSTOCK_EXPORT(FillGateKernels);

void FillGates(Kernels& kernels) { PENSTOCK_DISPATCH(FillGateKernels)(kernels); }

}  // namespace penstock::network
#endif  // HWY_ONCE
