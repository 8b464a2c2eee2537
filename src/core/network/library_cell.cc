// Cells of Recurrent nodes in the full library, which has exceptions: this file alone is compiled with them.

#include <algorithm>
#include <exception>
#include <string>

#include "backend/cpu/custom/custom.h"
#include "custom/cell.h"
#include "network/cell.h"
#include "plan/cell_table.h"

namespace penstock::network {

namespace {

void take(const cpu::CellKernels<float>& kernels, Cell& cell) {
  cell.panels = kernels.step_panels;
  cell.pack = kernels.pack_step;
  cell.step = kernels.step;
}

void take_built_in(const plan::CellTraits& traits, Index hidden, Cell& cell) {
  cell.gates = traits.info.gates, cell.states = traits.info.states, cell.scan = traits.info.scan;
  if (traits.phases == 2) cell.workspace = static_cast<std::size_t>((1 + traits.saved) * hidden);
  take(cpu::cell_kernels<float>(traits.index, Precision::full, true), cell);
}

void take_custom(std::string_view json, Index hidden, Index heads, Cell& cell) {
  custom::CustomCell read = custom::cell_from_json(json, "its cell");
  auto derived =
      std::make_shared<custom::DerivedCell>(custom::derive(std::move(read), "its cell", ErrorCode::bad_input));
  const custom::CustomCell& own = derived->cell;
  cell.gates = own.gates, cell.states = static_cast<Index>(own.states.size()), cell.scan = own.scan;
  cell.learnt = static_cast<Index>(own.learnt.size());
  if (derived->averages) {
    const Index values = cpu::head_values(derived->forward.slots, hidden / heads);
    cell.workspace = static_cast<std::size_t>(2 * cell.gates * hidden + values);
  }
  take(cpu::custom_kernels<float>(*derived), cell);
  cell.equations = std::move(derived);
}

}  // namespace

Status find_cell(std::string_view name, Index hidden, Index heads, Cell& cell) {
  try {
    const std::vector<plan::CellTraits>& table = plan::cell_table();
    const auto found =
        std::ranges::find_if(table, [&](const plan::CellTraits& each) { return each.info.name == name; });
    if (found != table.end()) {
      take_built_in(*found, hidden, cell);
    } else if (name.starts_with('{')) {
      take_custom(name, hidden, heads, cell);
    } else {
      return Status::unsupported("there is no cell '" + std::string(name) + "'");
    }
  } catch (const std::exception& error) {
    return Status::bad_input(error.what());
  }
  return {};
}

}  // namespace penstock::network
