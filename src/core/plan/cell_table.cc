#include "plan/cell_table.h"

#include <algorithm>

#include "base/check.h"
#include "plan/custom_cells.h"

namespace penstock {
namespace plan {
namespace {

#include "cells/gate_functions.h"

#include "cells/list.h"

#include "cells/contract.h"

template <class Cell>
CellTraits traits_of(std::string_view type, int index) {
  CellTraits traits;
  traits.text.type = type;
  traits.info = {Cell::name, Cell::description, Cell::gates, Cell::states, Cell::scan, Cell::has_kink};
  traits.index = index;
  traits.keep_gate = Cell::keep_gate;
  traits.overwrite_gate = Cell::overwrite_gate;
  traits.spread_memory = Cell::spread_memory;
  traits.first_gates = Cell::gates;
  if constexpr (!Cell::scan) {
    traits.saved = Cell::saved;
    traits.phases = Cell::phases;
    traits.split_gradients = Cell::split_gradients;
    traits.bounded = Cell::bounded;
    if constexpr (Cell::phases == 2) traits.first_gates = Cell::first_gates;
  }
  return traits;
}

}  // namespace

const std::vector<CellTraits>& cell_table() {
  static const std::vector<CellTraits> table = [] {
    std::vector<CellTraits> traits;
#define PENSTOCK_ADD(Cell) traits.push_back(traits_of<Cell>(#Cell, static_cast<int>(traits.size())));
    PENSTOCK_CELLS(PENSTOCK_ADD)
#undef PENSTOCK_ADD
    return traits;
  }();
  return table;
}

const CellTraits& cell_traits(std::string_view name) {
  for (const CellTraits& traits : cell_table()) {
    if (traits.info.name == name) return traits;
  }
  if (const CellTraits* const defined = find_custom_cell(name)) return *defined;
  std::vector<std::string> known;
  for (const CellInfo& cell : cells()) known.emplace_back(cell.name);
  std::ranges::move(custom_cell_names(), std::back_inserter(known));
  fail_choice("cell", name, std::move(known));
}

}  // namespace plan

const std::vector<CellInfo>& cells() {
  static const std::vector<CellInfo> infos = [] {
    std::vector<CellInfo> list;
    for (const plan::CellTraits& traits : plan::cell_table()) list.push_back(traits.info);
    return list;
  }();
  return infos;
}

const CellInfo& find_cell(std::string_view name) { return plan::cell_traits(name).info; }

}  // namespace penstock
