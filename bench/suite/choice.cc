// The cases of a table, if a caller wants other ones than those of its own lists.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "bench/suite/tables.h"
#include "penstock/system.h"

namespace penstock::bench {
namespace {

template <class T>
std::vector<T> or_else(const std::vector<T>& wanted, const std::vector<T>& usual) {
  return wanted.empty() ? usual : wanted;
}

std::vector<int> thread_counts(const std::vector<int>& wanted) {
  const int all = system_info().threads;
  std::vector<int> counts;
  for (int count : or_else(wanted, {1, all})) {
    constexpr int most = 1024;  // as the library has it
    require_argument(count >= 0 && count <= most, "threads", count, "0 to {}", most);
    if (count == 0) count = all;
    if (std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

/// The table's groups, cut to the cells and shapes that are wanted.
std::vector<Group> wanted_groups(const Table& table, Choice choice) {
  const bool any_cell = choice.cells.empty(), bare = is_bare_scan(table.groups.front().cells.front());
  for (const std::string& cell : choice.cells) {
    if (!is_bare_scan(cell)) find_cell(cell);
  }
  std::erase_if(choice.cells, [&](const std::string& cell) { return is_bare_scan(cell) != bare; });
  if (choice.cells.empty() && !any_cell) return {};
  if (!any_cell && !choice.shapes.empty()) return {{choice.cells, choice.shapes}};
  std::vector<Group> groups;
  for (Group group : table.groups) {
    if (!any_cell) {
      const std::vector<std::string> usual = std::exchange(group.cells, choice.cells);
      // A cell that the table has not runs at the shapes of its kind, or at all if there is one group.
      std::erase_if(group.cells, [&](const std::string& cell) {
        return table.groups.size() > 1 && find_cell(cell).scan != find_cell(usual.front()).scan;
      });
    }
    if (!choice.shapes.empty()) group.shapes = choice.shapes;
    constexpr std::size_t few = 2;
    if (choice.quick && group.shapes.size() > few) group.shapes.resize(few);
    groups.push_back(group);
  }
  return groups;
}

}  // namespace

std::vector<Case> cases(const Table& table, const Choice& choice) {
  std::vector<Case> all;
  const bool on_gpu = table.device == "cuda";
  require_about(!on_gpu || choice.threads.empty(), "threads", " are the CPU's: device cuda has none to choose");
  const std::vector<int> threads = on_gpu ? std::vector<int>{1} : thread_counts(choice.threads);
  for (const Shape& shape : choice.shapes) {
    constexpr Index most = Index{1} << 20;  // as the library has it
    require_about(std::max(shape.inputs, shape.hidden) <= most, "shapes",
                  " must have an input and a hidden size of at most {} each, not {}", most, to_string(shape));
  }
  for (const std::string& dtype : choice.dtypes) {
    const std::string second = on_gpu ? "f16" : "bf16-weights";
    require_about(dtype == "f32" || dtype == second || dtype == "bf16", "dtypes",
                  " must be among f32, {} and bf16, not '{}'", second, dtype);
  }
  for (const Pass pass : choice.passes) {
    require_about((pass == Pass::step) == (table.passes.front() == Pass::step), "passes",
                  " must be among those of the table {}, not '{}'", table.name, to_string(pass));
  }
  for (const Group& group : wanted_groups(table, choice)) {
    for (const std::string& cell : group.cells) {
      for (const std::string& dtype : or_else(choice.dtypes, table.dtypes)) {
        for (const Pass pass : or_else(choice.passes, table.passes)) {
          for (const Shape& shape : group.shapes) {
            for (const int count : threads) {
              const Case test{cell, shape, pass, dtype, count, table.device, table.percentiles};
              // Chosen cells may come with the shapes of several groups.
              const auto is_it = [&](const Case& known) { return known.label() == test.label(); };
              if (std::ranges::none_of(all, is_it)) all.push_back(test);
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace penstock::bench
