#include "runtime/custom_cell.h"

#include <algorithm>
#include <cstdint>

#include "custom/checks.h"
#include "custom/finite.h"

namespace penstock::custom {

// The reader below has checked what these check in the full library.
void check_operation(Operation /*operation*/, bool /*computes*/) {}
void check_constant(double /*value*/) {}
void check_operands(const ExpressionGraph& /*graph*/, const Node& /*node*/) {}

}  // namespace penstock::custom

namespace penstock::runtime {

namespace {

using custom::NodeId;
using custom::Operation;

/// Reads the text that custom/json.cc writes.
class CellReader {
 public:
  CellReader(JsonReader& json, Failure& failure) : json_(json), failure_(failure) {}

  bool read(std::string& name, std::shared_ptr<const custom::DerivedCell>& cell) {
    if (!json_.object([&](std::string_view key) { return field(key); })) return false;
    if (format_ != "penstock-cell" || version_ != 1) {
      return failure_.in_file(PENSTOCK_INCOMPATIBLE,
                              "cell %s is of a format that this version of Penstock does not read",
                              Quoted(cell_.name).c_str());
    }
    if (!check()) return false;
    auto derived = std::make_shared<custom::DerivedCell>();
    derived->forward = custom::compile(cell_.graph, cell_.outputs);
    if (derived->forward.slots > custom::kMostSlots) return refuse("needs too many values at a time");
    for (const custom::Program::Instruction& step : derived->forward.instructions) {
      derived->averages = derived->averages || step.operation == Operation::mean;
    }
    name = cell_.name;
    derived->cell = std::move(cell_);
    cell = std::move(derived);
    return true;
  }

 private:
  bool refuse(const char* why) {
    return failure_.in_file(PENSTOCK_BAD_INPUT, "cell %s %s", Quoted(cell_.name).c_str(), why);
  }

  bool field(std::string_view key) {
    if (key == "format") return json_.string(format_);
    if (key == "version") return json_.integer(version_);
    if (key == "name") return json_.string(cell_.name);
    if (key == "description" || key == "spread_memory") return json_.skip();
    if (key == "keep_gate" || key == "overwrite_gate") return json_.skip();  // of initial values
    if (key == "kind") return kind();
    if (key == "gates") return gates();
    if (key == "states") {
      cell_.states.clear();
      return json_.array([&] {
        if (cell_.states.size() == custom::kMostStates) return json_.mistake("fewer states");
        return json_.string(cell_.states.emplace_back());
      });
    }
    if (key == "learnt") {
      cell_.learnt.clear();
      return json_.array([&] {
        if (cell_.learnt.size() == custom::kMostLearnt) return json_.mistake("fewer learnt vectors");
        cell_.learnt.emplace_back();
        return json_.skip();
      });
    }
    if (key == "nodes" && ids_.empty()) return json_.array([&] { return node(); });
    if (key == "outputs" && outputs_.empty()) return numbers(outputs_, custom::kMostStates);
    return json_.mistake("a field of cells, once,");
  }

  bool kind() {
    std::string kind;
    if (!json_.string(kind)) return false;
    cell_.scan = kind == "scan";
    return cell_.scan || kind == "dense" || json_.mistake("dense or scan");
  }

  bool gates() {
    Index gates = 0;
    if (!json_.integer(gates)) return false;
    if (gates < 1 || gates > custom::kMostGates) return json_.mistake("a possible number of gates");
    cell_.gates = static_cast<int>(gates);
    return true;
  }

  bool numbers(std::vector<Index>& list, std::size_t most) {
    return json_.array([&] {
      if (list.size() == most) return json_.mistake("fewer numbers");
      return json_.integer(list.emplace_back());
    });
  }

  bool node() {
    if (ids_.size() == custom::kMostNodes) return json_.mistake("fewer operations");
    std::string name;
    double value = 0;
    Index index = -1;
    std::vector<Index> of;
    const bool read = json_.object([&](std::string_view key) {
      if (key == "op") return json_.string(name);
      if (key == "value") return json_.number(value);
      if (key == "index") return json_.integer(index);
      if (key == "of" && of.empty()) return numbers(of, 3);
      return json_.mistake("op, value, index or of");
    });
    if (!read) return false;
    Operation operation{};
    if (!custom::find_operation(name, operation) ||
        (operation > Operation::learnt && operation < Operation::constant)) {
      return refuse("has an operation that cells do not have");
    }
    if (operation == Operation::constant) {
      if (!custom::is_finite_float(value)) return refuse("has a constant that 32 bits do not hold");
      ids_.push_back(cell_.graph.constant(value));
      return true;
    }
    if (custom::arity(operation) == 0) {
      if (index < 0 || index >= custom::kMostLearnt) return refuse("reads something that there is not");
      ids_.push_back(cell_.graph.leaf(operation, static_cast<int>(index)));
      return true;
    }
    NodeId operands[3] = {custom::kNoNode, custom::kNoNode, custom::kNoNode};
    if (of.size() != static_cast<std::size_t>(custom::arity(operation))) {
      return refuse("has an operation with a wrong number of operands");
    }
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (!find(of[i], operands[i])) return false;
    }
    ids_.push_back(cell_.graph.make(operation, operands[0], operands[1], operands[2]));
    return true;
  }

  bool find(Index number, NodeId& id) {
    if (number < 0 || number >= static_cast<Index>(ids_.size()))
      return refuse("reads an operation that is not before it");
    id = ids_[static_cast<std::size_t>(number)];
    return true;
  }

  bool check() {
    if (cell_.scan ? cell_.gates > custom::kMostScanGates || cell_.states.size() != 1 : cell_.states.empty()) {
      return refuse("has a number of gates or states that its kind does not have");
    }
    if (outputs_.size() != (cell_.scan ? 2 : cell_.states.size())) return refuse("has a wrong number of outputs");
    for (const Index output : outputs_) {
      if (!find(output, cell_.outputs.emplace_back())) return false;
      if (cell_.graph.depth(cell_.outputs.back()) > custom::kMostDepth) return refuse("is nested too deep");
    }
    for (NodeId id = 0; id < cell_.graph.size(); ++id) {
      if (!check_leaf(cell_.graph[id])) return refuse("reads something that cells of its kind do not have");
    }
    return true;
  }

  bool check_leaf(const custom::Node& node) const {
    const auto below = [&](std::size_t count) {
      return node.index >= 0 && static_cast<std::size_t>(node.index) < count;
    };
    switch (node.operation) {
      case Operation::input:
        return below(static_cast<std::size_t>(cell_.gates));
      case Operation::recurrent:
        return !cell_.scan && below(static_cast<std::size_t>(cell_.gates));
      case Operation::state:
        return !cell_.scan && below(cell_.states.size());
      case Operation::learnt:
        return below(cell_.learnt.size());
      case Operation::mean:
        return !cell_.scan;
      default:
        return true;
    }
  }

  JsonReader& json_;
  Failure& failure_;
  custom::CustomCell cell_;
  std::string format_;
  Index version_ = 0;
  std::vector<NodeId> ids_;
  std::vector<Index> outputs_;
};

}  // namespace

bool read_custom_cell(JsonReader& json, std::string& name, std::shared_ptr<const custom::DerivedCell>& cell,
                      Failure& failure) {
  return CellReader(json, failure).read(name, cell);
}

}  // namespace penstock::runtime
