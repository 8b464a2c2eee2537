// Cells that a program, a file or Python defined while this process runs.

#include "plan/custom_cells.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "custom/cuda_text.h"
#include "custom/trace.h"

namespace penstock {
namespace plan {
namespace {

struct RegisteredCell {
  std::string json;
  std::string identity;  // json without the description, which may change while the cell stays the same
  custom::DerivedCell derived;
  std::string text;
  CellTraits traits;  // its views are of `derived` and `text`
};

class CustomCells {
 public:
  const RegisteredCell* find(std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto found = cells_.find(name);
    return found == cells_.end() ? nullptr : found->second.get();
  }

  const RegisteredCell& add(std::unique_ptr<RegisteredCell> cell, std::string_view source, ErrorCode code) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = cells_.try_emplace(cell->derived.cell.name, nullptr);
    if (is_new) {
      place->second = std::move(cell);
    } else if (place->second->identity != cell->identity) {
      fail(code,
           "{}: a cell called {} is defined already and has other equations: give this one another name, such as "
           "name=\"{}-2\", or start a new process",
           source, in_quotes(place->first), place->first);
    }
    return *place->second;
  }

  std::vector<std::string> names() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [name, cell] : cells_) all.push_back(name);
    return all;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::unique_ptr<RegisteredCell>, std::less<>> cells_;
};

CustomCells& custom_cells() {
  static CustomCells cells;
  return cells;
}

CellTraits traits_of(const custom::DerivedCell& derived) {
  const custom::CustomCell& cell = derived.cell;
  CellTraits traits;
  traits.info = {cell.name, cell.description, cell.gates, static_cast<Index>(cell.states.size()),
                 cell.scan, derived.has_kink};
  traits.index = kCustomCell;
  traits.keep_gate = cell.keep_gate;
  traits.overwrite_gate = cell.overwrite_gate;
  traits.spread_memory = cell.spread_memory;
  traits.saved = static_cast<int>(derived.kept.size());
  traits.first_gates = cell.gates;
  traits.split_gradients = derived.split_gradients;
  custom::Averages averages = custom::averages_of(derived);
  traits.alive = std::max({derived.training.slots, derived.backward.slots, averages.alive});
  traits.forward_means = std::move(averages.forward), traits.backward_means = std::move(averages.backward);
  traits.learnt = static_cast<int>(cell.learnt.size());
  traits.averages = derived.averages;
  traits.custom = &derived;
  return traits;
}

}  // namespace

const CellTraits* find_custom_cell(std::string_view name) {
  const RegisteredCell* const found = custom_cells().find(name);
  return found == nullptr ? nullptr : &found->traits;
}

const CellTraits& add_custom_cell(custom::CustomCell cell, std::string_view source, ErrorCode code) {
  for (const CellTraits& own : cell_table()) {
    if (own.info.name != cell.name) continue;
    fail(code, "{}: {} is a cell that Penstock brings along: choose another name", source, in_quotes(cell.name));
  }
  auto defined = std::make_unique<RegisteredCell>();
  defined->json = custom::to_json(cell);
  const std::string description = std::exchange(cell.description, {});
  defined->identity = custom::to_json(cell);
  cell.description = description;
  defined->derived = custom::derive(std::move(cell), source, code);
  defined->traits = traits_of(defined->derived);
  constexpr std::string_view type = "RegisteredCell";
  defined->text = custom::cuda_text(defined->derived, type);
  defined->traits.text = {type, defined->text};
  return custom_cells().add(std::move(defined), source, code).traits;
}

const std::string& custom_cell_json(const CellTraits& traits) { return custom_cells().find(traits.info.name)->json; }

std::vector<std::string> custom_cell_names() { return custom_cells().names(); }

}  // namespace plan

const CellInfo& define_cell(const CellDefinition& definition, const CellEquations& equations) {
  custom::CustomCell cell = custom::trace_cell(definition, equations);
  return plan::add_custom_cell(std::move(cell), "cell", ErrorCode::invalid_argument).info;
}

const CellInfo& define_cell_json(std::string_view json, std::string_view source) {
  return plan::add_custom_cell(custom::cell_from_json(json, source), source, ErrorCode::bad_input).info;
}

Index learnt_vectors(std::string_view cell) { return plan::cell_traits(cell).learnt; }

const std::string& cell_json(std::string_view name) {
  const plan::CellTraits& traits = plan::cell_traits(name);
  require(traits.custom != nullptr, "cell {} is one that Penstock brings along: it has no equations as JSON",
          in_quotes(name));
  return plan::custom_cell_json(traits);
}

}  // namespace penstock
