// The kernels of steps for every instruction set, chosen when a model is opened.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/step_kernels.cc"

#include "runtime/step_kernels.h"

#include "backend/cpu/element_kernels.h"
#include "custom/cell.h"

#include "backend/cpu/every_target.inl"

#include "backend/cpu/dispatch_target.h"

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/dense/panel_packing.inl"

#include "backend/cpu/product/product.inl"

#include "backend/cpu/elementwise.inl"

#include "backend/cpu/custom/evaluate.inl"

#include "backend/cpu/scan/cell_step.inl"

#include "backend/cpu/custom/scan.inl"

#include "backend/cpu/dense/step_panels.inl"

#include "backend/cpu/custom/scan_layer.inl"

#include "backend/cpu/scan/step.inl"

#include "backend/cpu/dense/step.inl"

#include "backend/cpu/custom/step.inl"

void FillCell(int cell, runtime::LayerKernels& layer) {
  WithDenseCell(cell, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    layer = {&DenseStepPanels<float, Cell>, &PackDenseStep<float, Cell>, &RunDenseStep<float, Cell>};
  });
  WithScanCell(cell, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    layer = {&ScanStepPanels<float, Cell>, &PackScanStep<float, Cell>, &RunScanStep<float, Cell>};
  });
}

template <class Cell>
runtime::LayerKernels CustomScanKernels() {
  return {&ScanStepPanels<float, Cell>, &PackScanStep<float, Cell>, &RunScanStep<float, Cell>};
}

void FillCustom(int gates, bool scan, runtime::LayerKernels& layer) {
  if (scan) {
    if (gates == 1) layer = CustomScanKernels<CustomScan<1>>();
    if (gates == 2) layer = CustomScanKernels<CustomScan<2>>();
    if (gates == 3) layer = CustomScanKernels<CustomScan<3>>();
    return;
  }
  WithCustomGates(gates, [&](auto tag) {
    using Cell = typename decltype(tag)::type;
    layer = {&DenseStepPanels<float, Cell>, &PackDenseStep<float, Cell>, &RunCustomStep<float, Cell>};
  });
}

}  // namespace

const runtime::StepKernels* Kernels() {
  static constexpr runtime::StepKernels kernels = {
      &FillCell, &FillCustom, &RowsTimesRows<float>, &RowsTimesColumns<float>, &SiluGate<float>, &RmsNorm<float>};
  return &kernels;
}

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

PENSTOCK_EXPORT(Kernels);

}  // namespace penstock::cpu

namespace penstock::runtime {
namespace {

#include "cells/gate_functions.h"

#include "cells/list.h"

template <class Cell>
constexpr CellForm form_of(int index) {
  CellForm form = {Cell::name, index, Cell::gates, Cell::states, Cell::scan};
  if constexpr (!Cell::scan) {
    form.saved = Cell::saved;
    form.phases = Cell::phases;
  }
  return form;
}

enum CellIndex : int {
#define PENSTOCK_INDEX(Cell) k##Cell,
  PENSTOCK_CELLS(PENSTOCK_INDEX)
#undef PENSTOCK_INDEX
};

constexpr CellForm kForms[] = {
#define PENSTOCK_FORM(Cell) form_of<Cell>(k##Cell),
    PENSTOCK_CELLS(PENSTOCK_FORM)
#undef PENSTOCK_FORM
};

}  // namespace

const CellForm* find_cell_form(std::string_view name) {
  const auto* const found = std::ranges::find(kForms, name, &CellForm::name);
  return found == std::end(kForms) ? nullptr : found;
}

const StepKernels* step_kernels() {
  using cpu::KernelsTable;
  return PENSTOCK_DISPATCH(Kernels)();
}

}  // namespace penstock::runtime
#endif  // HWY_ONCE
