#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/check.h"
#include "base/quote.h"
#include "formula/cell.h"

namespace penstock::formula {

namespace {

using CellJson = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::string_view kFormat = "penstock-cell";
constexpr int kVersion = 1;

/// Reads the fields of one object; every message names the source, the object and the field.
class Fields {
 public:
  Fields(const CellJson& object, std::string_view source, std::string name)
      : object_(object), source_(source), name_(std::move(name)) {
    if (!object.is_object())
      fail(ErrorCode::bad_input, "{}: {} must be an object, not {}", source_, name_, brief(object));
  }

  [[noreturn]] void refuse(std::string_view field, const std::string& problem) const {
    fail(ErrorCode::bad_input, "{}: {}.{} {}", source_, name_, field, problem);
  }

  void allow(std::initializer_list<std::string_view> known) const {
    for (const auto& item : object_.items()) {
      if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
      fail(ErrorCode::bad_input, "{}: {} has no field {}; it may have {}", source_, name_, in_quotes(item.key()),
           fmt::join(known, ", "));
    }
  }

  bool has(const char* field) const { return object_.contains(field); }

  const CellJson& get(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) refuse(field, "is missing");
    return *found;
  }

  const CellJson& array(const char* field) const {
    const CellJson& value = get(field);
    if (!value.is_array()) refuse(field, "must be an array, not " + brief(value));
    return value;
  }

  std::string string(const char* field) const {
    const CellJson& value = get(field);
    if (!value.is_string()) refuse(field, "must be a string, not " + brief(value));
    return value.get<std::string>();
  }

  double number(const char* field) const {
    const CellJson& value = get(field);
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      refuse(field, "must be a finite number, not " + brief(value));
    return value.get<double>();
  }

  bool boolean(const char* field) const {
    const CellJson& value = get(field);
    if (!value.is_boolean()) refuse(field, "must be true or false, not " + brief(value));
    return value.get<bool>();
  }

  int integer(const char* field, int low, int high) const { return integer(field, get(field), low, high); }

  int integer(const std::string& field, const CellJson& value, int low, int high) const {
    if (value.is_number_integer()) {
      const bool large = value.is_number_unsigned() &&
                         value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<int>::max());
      const auto number = large ? std::numeric_limits<std::int64_t>::max() : value.get<std::int64_t>();
      if (number >= low && number <= high) return static_cast<int>(number);
    }
    refuse(field, fmt::format("must be {} to {}, not {}", low, high, brief(value)));
  }

  static std::string brief(const CellJson& value) {
    constexpr std::size_t limit = 60;
    std::string text = value.dump(-1, ' ', true, CellJson::error_handler_t::replace);
    return text.size() > limit ? text.substr(0, limit) + "..." : text;
  }

 private:
  const CellJson& object_;
  std::string_view source_;
  std::string name_;
};

CellJson node_to_json(const Node& node) {
  CellJson json;
  json["op"] = to_string(node.operation);
  if (node.operation == Operation::constant) {
    json["value"] = node.value;
  } else if (node.operands().empty()) {
    json["index"] = node.index;
  } else {
    json["of"] = node.operands();
  }
  return json;
}

class CellReader {
 public:
  CellReader(const CellJson& json, std::string_view source) : fields_(json, source, "cell"), source_(source) {}

  CellFormula read() {
    fields_.allow({"format", "version", "name", "description", "kind", "gates", "states", "learnt", "keep_gate",
                   "overwrite_gate", "spread_memory", "nodes", "outputs"});
    if (fields_.string("format") != kFormat) fields_.refuse("format", fmt::format("must be \"{}\"", kFormat));
    if (const int version = fields_.integer("version", 1, std::numeric_limits<int>::max()); version != kVersion) {
      fields_.refuse("version", fmt::format("is {}, and this Penstock reads {}: use a newer one", version, kVersion));
    }
    read_head();
    read_nodes();
    check_cell(cell_, source_, ErrorCode::bad_input);
    return std::move(cell_);
  }

 private:
  void read_head() {
    cell_.name = fields_.string("name");
    if (fields_.has("description")) cell_.description = fields_.string("description");
    const std::string kind = fields_.string("kind");
    if (kind != "dense" && kind != "scan")
      fields_.refuse("kind", "must be \"dense\" or \"scan\", not " + in_quotes(kind));
    cell_.scan = kind == "scan";
    cell_.gates = fields_.integer("gates", 1, kMostGates);
    for (const CellJson& name : fields_.array("states")) {
      if (!name.is_string()) fields_.refuse("states", "must be strings, not " + Fields::brief(name));
      cell_.states.push_back(name.get<std::string>());
    }
    if (fields_.has("learnt")) {
      for (const CellJson& item : fields_.array("learnt")) {
        const Fields learnt(item, source_, fmt::format("cell.learnt[{}]", cell_.learnt.size()));
        learnt.allow({"name", "initial"});
        cell_.learnt.push_back({learnt.string("name"), learnt.has("initial") ? learnt.number("initial") : 0.0});
      }
    }
    if (fields_.has("keep_gate")) cell_.keep_gate = fields_.integer("keep_gate", -1, kMostGates - 1);
    if (fields_.has("overwrite_gate")) cell_.overwrite_gate = fields_.integer("overwrite_gate", -1, kMostGates - 1);
    if (fields_.has("spread_memory")) cell_.spread_memory = fields_.boolean("spread_memory");
  }

  void read_nodes() {
    const CellJson& nodes = fields_.array("nodes");
    if (nodes.empty() || nodes.size() > static_cast<std::size_t>(kMostNodes)) {
      fields_.refuse("nodes", fmt::format("must be 1 to {} operations, not {}", kMostNodes, nodes.size()));
    }
    for (const CellJson& item : nodes) ids_.push_back(read_node(item));
    int i = 0;
    for (const CellJson& item : fields_.array("outputs")) {
      cell_.outputs.push_back(id(fields_, fmt::format("outputs[{}]", i++), item));
    }
  }

  /// The node that the file numbers so; folded and shared nodes have others here.
  NodeId id(const Fields& fields, const std::string& field, const CellJson& value) const {
    const auto last = static_cast<int>(ids_.size()) - 1;
    if (last < 0) fields.refuse(field, "reads another node, and this is the first one");
    return ids_[static_cast<std::size_t>(fields.integer(field, value, 0, last))];
  }

  NodeId read_node(const CellJson& item) {
    const Fields fields(item, source_, fmt::format("cell.nodes[{}]", ids_.size()));
    const std::string name = fields.string("op");
    Operation operation{};
    if (!find_operation(name, operation) || (operation > Operation::learnt && operation < Operation::constant)) {
      fields.refuse("op", in_quotes(name) + " is no operation of cells");
    }
    if (operation == Operation::constant) {
      fields.allow({"op", "value"});
      return cell_.formula.constant(fields.number("value"));
    }
    if (arity(operation) == 0) {
      fields.allow({"op", "index"});
      return cell_.formula.leaf(operation, fields.integer("index", 0, kMostLearnt - 1));
    }
    fields.allow({"op", "of"});
    const CellJson& operands = fields.array("of");
    if (operands.size() != static_cast<std::size_t>(arity(operation))) {
      fields.refuse("of", fmt::format("must be {} nodes for {}, not {}", arity(operation), name, operands.size()));
    }
    NodeId of[3] = {kNoNode, kNoNode, kNoNode};
    for (std::size_t i = 0; i < operands.size(); ++i) of[i] = id(fields, fmt::format("of[{}]", i), operands[i]);
    return cell_.formula.make(operation, of[0], of[1], of[2]);
  }

  Fields fields_;
  std::string_view source_;
  CellFormula cell_;
  std::vector<NodeId> ids_;
};

}  // namespace

std::string to_json(const CellFormula& cell) {
  CellJson json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["name"] = cell.name;
  json["description"] = cell.description;
  json["kind"] = cell.scan ? "scan" : "dense";
  json["gates"] = cell.gates;
  json["states"] = cell.states;
  json["learnt"] = CellJson::array();
  for (const LearntVector& learnt : cell.learnt) {
    json["learnt"].push_back({{"name", learnt.name}, {"initial", learnt.initial}});
  }
  json["keep_gate"] = cell.keep_gate;
  json["overwrite_gate"] = cell.overwrite_gate;
  json["spread_memory"] = cell.spread_memory;
  json["nodes"] = CellJson::array();
  for (NodeId id = 0; id < cell.formula.size(); ++id) json["nodes"].push_back(node_to_json(cell.formula[id]));
  json["outputs"] = cell.outputs;
  return json.dump();
}

CellFormula cell_from_json(std::string_view text, std::string_view source) {
  if (text.size() > kMostBytes) {
    fail(ErrorCode::bad_input, "{}: a cell is at most {} bytes of JSON, not {}", source, kMostBytes, text.size());
  }
  const CellJson json = CellJson::parse(text, nullptr, false);
  if (json.is_discarded())
    fail(ErrorCode::bad_input, "{}: a cell must be one JSON object, and this is no JSON", source);
  return CellReader(json, source).read();
}

}  // namespace penstock::formula
