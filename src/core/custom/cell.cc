#include "custom/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/quote.h"
#include "custom/derive.h"
#include "custom/finite.h"

namespace penstock::custom {

namespace {

class Checker {
 public:
  Checker(const CustomCell& cell, std::string_view source, ErrorCode code)
      : cell_(cell), source_(source), code_(code) {}

  void check() const {
    check_name();
    const int most_gates = cell_.scan ? kMostScanGates : kMostGates;
    demand(cell_.gates >= 1 && cell_.gates <= most_gates, "gates must be 1 to {} for a {} cell, not {}", most_gates,
           cell_.scan ? "scan" : "dense", cell_.gates);
    const auto states = static_cast<int>(cell_.states.size());
    const int most_states = cell_.scan ? 1 : kMostStates;
    demand(states >= 1 && states <= most_states, "states must be 1 to {} names for a {} cell, not {}", most_states,
           cell_.scan ? "scan" : "dense", states);
    const auto learnt = static_cast<int>(cell_.learnt.size());
    demand(learnt <= kMostLearnt, "learnt vectors must be at most {}, not {}", kMostLearnt, learnt);
    check_gate("keep_gate", cell_.keep_gate);
    check_gate("overwrite_gate", cell_.overwrite_gate);
    check_names();
    check_outputs();
    check_nodes();
  }

 private:
  template <class... Args>
  void demand(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) fail(code_, "{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_name() const {
    const std::string& name = cell_.name;
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; };
    const bool valid = !name.empty() && name.size() <= 64 && name[0] >= 'a' && name[0] <= 'z' &&
                       std::all_of(name.begin(), name.end(), fits);
    demand(valid, "name must be 1 to 64 characters a-z, 0-9, '-' and '_' and begin with a letter, not {}",
           in_quotes(name));
    demand(cell_.description.size() <= 200, "description must be at most 200 bytes, not {}", cell_.description.size());
  }

  void check_gate(const char* field, int gate) const {
    demand(gate >= -1 && gate < cell_.gates, "{} must be a gate, 0 to {}, or -1, not {}", field, cell_.gates - 1, gate);
  }

  void check_names() const {
    std::set<std::string_view> seen;
    const auto check = [&](const char* field, std::size_t i, const std::string& name) {
      demand(!name.empty() && name.size() <= 64, "{}[{}] must have a name of 1 to 64 bytes, not {}", field, i,
             in_quotes(name));
      demand(seen.insert(name).second, "{}[{}] is called {}, as another state or learnt vector is", field, i,
             in_quotes(name));
    };
    for (std::size_t i = 0; i < cell_.states.size(); ++i) check("states", i, cell_.states[i]);
    for (std::size_t i = 0; i < cell_.learnt.size(); ++i) {
      const auto& [name, initial] = cell_.learnt[i];
      check("learnt", i, name);
      demand(is_finite_float(initial),
             "the initial value of learnt vector {} must be finite in 32 bits (3.4e38 at most), not {}",
             in_quotes(name), initial);
    }
  }

  void check_outputs() const {
    if (cell_.scan) {
      demand(cell_.outputs.size() == 2, "a scan cell returns 2 values, a and b of h' = a h + b, not {}",
             cell_.outputs.size());
    } else {
      demand(cell_.outputs.size() == cell_.states.size(),
             "the cell returns {} values and has {} states ({}): return "
             "one value for each state, the output first",
             cell_.outputs.size(), cell_.states.size(), fmt::join(cell_.states, ", "));
    }
    for (const NodeId output : cell_.outputs) {
      demand(output >= 0 && output < cell_.graph.size(), "an output must be one of {} nodes, not {}",
             cell_.graph.size(), output);
      demand(cell_.graph.depth(output) <= kMostDepth,
             "operations must be nested at most {} deep, not {}: write the cell with fewer steps", kMostDepth,
             cell_.graph.depth(output));
    }
  }

  void check_leaf(NodeId id, const char* what, int count) const {
    const int index = cell_.graph[id].index;
    demand(index >= 0 && index < count, "node {} reads {} {}, and there are {}", id, what, index, count);
  }

  void check_nodes() const {
    const ExpressionGraph& graph = cell_.graph;
    demand(graph.size() <= kMostNodes, "a cell has at most {} operations, not {}: split it into two layers", kMostNodes,
           graph.size());
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Operation operation = graph[id].operation;
      switch (operation) {
        case Operation::input:
          check_leaf(id, "gate wx", cell_.gates);
          break;
        case Operation::recurrent:
          demand(!cell_.scan,
                 "node {} reads R h, and a scan cell has no recurrent matrix: use W x alone, or a dense cell", id);
          check_leaf(id, "gate rh", cell_.gates);
          break;
        case Operation::state:
          demand(
              !cell_.scan,
              "node {} reads the state, and a and b of a scan cell depend on W x and learnt vectors alone: use a dense "
              "cell",
              id);
          check_leaf(id, "state", static_cast<int>(cell_.states.size()));
          break;
        case Operation::learnt:
          check_leaf(id, "learnt vector", static_cast<int>(cell_.learnt.size()));
          break;
        case Operation::mean:
          demand(!cell_.scan, "node {} is a mean over units, and those of a scan cell are apart: use a dense cell", id);
          break;
        default:
          demand(operation >= Operation::constant, "node {} is a {}, which only derived graphs have", id,
                 to_string(operation));
      }
    }
  }

  const CustomCell& cell_;
  std::string_view source_;
  ErrorCode code_;
};

/// Returns whether the outputs need one of these operations.
bool needs_any(const ExpressionGraph& graph, std::span<const NodeId> outputs,
               std::initializer_list<Operation> operations) {
  const std::vector<bool> used = reachable(graph, outputs);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!used[static_cast<std::size_t>(id)]) continue;
    if (std::ranges::find(operations, graph[id].operation) != operations.end()) return true;
  }
  return false;
}

std::vector<NodeId> backward_roots(CustomCell& cell) {
  ExpressionGraph& graph = cell.graph;
  const int count = graph.size();
  std::vector<NodeId> seeds;
  for (std::size_t k = 0; k < cell.outputs.size(); ++k) {
    seeds.push_back(graph.leaf(Operation::gradient, static_cast<int>(k)));
  }
  const std::vector<NodeId> gradient = gradients(graph, cell.outputs, seeds, count);
  std::vector<NodeId> roots;
  const auto append = [&](Operation operation, std::size_t leaves) {
    for (std::size_t i = 0; i < leaves; ++i) {
      const auto leaf = static_cast<std::size_t>(graph.leaf(operation, static_cast<int>(i)));
      const NodeId found = leaf < gradient.size() ? gradient[leaf] : kNoNode;
      roots.push_back(found != kNoNode ? found : graph.constant(0));  // 0 where nothing depends on it
    }
  };
  const auto gates = static_cast<std::size_t>(cell.gates);
  append(Operation::input, gates);
  if (!cell.scan) {
    append(Operation::recurrent, gates);
    append(Operation::state, cell.states.size());
  }
  append(Operation::learnt, cell.learnt.size());
  if (cell.scan) roots.insert(roots.end(), cell.outputs.begin(), cell.outputs.end());
  return roots;
}

/// Returns whether a comparison or a choice reads a gate of W x or R h other than as their sum. Gradients, which do not
/// pass through it, then do not show that the cell depends on more than the sum.
bool decides_by_parts(const ExpressionGraph& graph, std::span<const NodeId> outputs) {
  const std::vector<bool> used = reachable(graph, outputs);
  std::vector<bool> reads_part(used.size());
  const auto at = [&](NodeId id) { return reads_part[static_cast<std::size_t>(id)]; };
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!used[static_cast<std::size_t>(id)]) continue;
    const Node& node = graph[id];
    const auto operands = node.operands();
    bool any = std::any_of(operands.begin(), operands.end(), at);
    switch (node.operation) {
      case Operation::input:
      case Operation::recurrent:
        any = true;
        break;
      case Operation::add: {
        const Node &a = graph[node.of[0]], &b = graph[node.of[1]];
        const bool both = (a.operation == Operation::input && b.operation == Operation::recurrent) ||
                          (a.operation == Operation::recurrent && b.operation == Operation::input);
        if (both && a.index == b.index) any = false;
        break;
      }
      case Operation::less:
      case Operation::less_equal:
      case Operation::equal:
        if (any) return true;
        break;
      case Operation::where:
        if (at(node.of[0])) return true;
        break;
      default:
        break;
    }
    reads_part[static_cast<std::size_t>(id)] = any;
  }
  return false;
}

}  // namespace

void check_cell(const CustomCell& cell, std::string_view source, ErrorCode code) {
  Checker(cell, source, code).check();
}

DerivedCell derive(CustomCell cell, std::string_view source, ErrorCode code) {
  DerivedCell derived;
  using enum Operation;
  derived.has_kink = needs_any(cell.graph, cell.outputs,
                               {relu, Operation::abs, Operation::min, Operation::max, clamp, less, less_equal, equal});
  derived.averages = needs_any(cell.graph, cell.outputs, {mean});
  const std::vector<NodeId> roots = backward_roots(cell);
  const auto gates = static_cast<std::ptrdiff_t>(cell.gates);
  if (!cell.scan) {
    derived.kept = choose_kept(cell.graph, cell.outputs, roots);
    derived.split_gradients = !std::equal(roots.begin(), roots.begin() + gates, roots.begin() + gates) ||
                              decides_by_parts(cell.graph, cell.outputs);
  }
  std::vector<NodeId> of_tangent = tangents(cell.graph, cell.outputs);
  for (NodeId& tangent : of_tangent) {
    if (tangent == kNoNode) tangent = cell.graph.constant(0);
  }
  std::vector<NodeId> training = cell.outputs;
  training.insert(training.end(), derived.kept.begin(), derived.kept.end());
  derived.forward = compile(cell.graph, cell.outputs);
  derived.training = compile(cell.graph, training);
  derived.backward = compile(cell.graph, roots, derived.kept);
  derived.tangent = compile(cell.graph, of_tangent);
  derived.gradients = roots;
  for (const Program* program : {&derived.training, &derived.backward}) {
    if (program->slots > kMostSlots) {
      fail(code, "{}: the cell needs {} values at a time and {} are allowed: split it into two layers", source,
           program->slots, kMostSlots);
    }
  }
  derived.cell = std::move(cell);
  return derived;
}

}  // namespace penstock::custom
