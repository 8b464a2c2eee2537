// The kernels of steps for every instruction set, chosen when a model is opened.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/step_kernels.cc"

#include "runtime/step_kernels.h"

#include <cstdlib>

#include "backend/cpu/element_kernels.h"
#include "custom/cell.h"

#include "backend/cpu/every_target.inl"

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
  constexpr const char* name = HWY_TARGET == HWY_AVX3   ? "avx512"
                               : HWY_TARGET == HWY_AVX2 ? "avx2"
                               : HWY_ARCH_X86           ? "baseline"
                                                        : "neon";
  static constexpr runtime::StepKernels kernels = {
      name, &FillCell, &FillCustom, &RowsTimesRows<float>, &RowsTimesColumns<float>, &SiluGate<float>, &RmsNorm<float>};
  return &kernels;
}

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {
namespace {

/// An instruction set, and whether this chip has it.
struct Choice {
  const runtime::StepKernels* (*kernels)();
  bool (*is_there)();
};

/// Best first. What the compiler was told that each chip has needs no question.
constexpr Choice kChoices[] = {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
    {&N_AVX3::Kernels,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
     }},
#endif
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
    {&N_AVX2::Kernels,
     [] {
       return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
     }},
#endif
    {&HWY_STATIC_DISPATCH(Kernels), [] { return true; }},
};

}  // namespace
}  // namespace penstock::cpu

namespace penstock::runtime {
namespace {

#include "cells/prelude.h"

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
#if HWY_ARCH_X86
  __builtin_cpu_init();
#endif
  const char* const wanted = std::getenv("PENSTOCK_ISA");
  for (const cpu::Choice& choice : cpu::kChoices) {
    if (!choice.is_there()) continue;
    const StepKernels* const kernels = choice.kernels();
    // The full library has one more name: AVX-512 with tiles, in which streams run as without.
    const bool named = wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == kernels->name ||
                       (std::string_view(wanted) == "amx" && std::string_view(kernels->name) == "avx512");
    if (named) return kernels;
  }
  return nullptr;
}

}  // namespace penstock::runtime
#endif  // HWY_ONCE
