#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "base/check.h"
#include "base/json_fields.h"
#include "base/quote.h"
#include "custom/cell.h"
#include "custom/finite.h"

namespace penstock::custom {

namespace {

using CellJson = nlohmann::ordered_json;  // as people would write it
using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::string_view kFormat = "penstock-cell";
constexpr int kVersion = 1;

/// Throws Error(bad_input) unless an object has only fields of these names.
void allow(const Json& object, std::string_view source, std::string_view name,
           std::initializer_list<std::string_view> known) {
  for (const auto& item : object.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    fail(ErrorCode::bad_input, "{}: {} has no field {}; it may have {}", source, name, in_quotes(item.key()),
         fmt::join(known, ", "));
  }
}

int small_integer(FieldReader& reader, const char* field, int least, int most) {
  return static_cast<int>(reader.integer(field, least, most));
}

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
  CellReader(const Json& json, std::string_view source)
      : json_(json), fields_(json, std::string(source), "cell"), source_(source) {}

  CustomCell read() {
    allow(json_, source_, "cell",
          {"format", "version", "name", "description", "kind", "gates", "states", "learnt", "keep_gate",
           "overwrite_gate", "spread_memory", "nodes", "outputs"});
    if (fields_.string("format") != kFormat) fields_.refuse("format", fmt::format("must be \"{}\"", kFormat));
    if (const Index version = fields_.integer("version", 1, std::numeric_limits<int>::max()); version != kVersion) {
      fields_.refuse("version", fmt::format("is {}, and this Penstock reads {}: use a newer one", version, kVersion));
    }
    read_head();
    read_nodes();
    check_cell(cell_, source_, ErrorCode::bad_input);
    return std::move(cell_);
  }

 private:
  void read_head() {
    fields_.field("name", cell_.name);
    fields_.optional("description", cell_.description);
    const std::string kind = fields_.string("kind");
    if (kind != "dense" && kind != "scan")
      fields_.refuse("kind", "must be \"dense\" or \"scan\", not " + in_quotes(kind));
    cell_.scan = kind == "scan";
    cell_.gates = small_integer(fields_, "gates", 1, kMostGates);
    fields_.field("states", cell_.states);
    if (fields_.has("learnt")) {
      for (const Json& item : fields_.array("learnt")) {
        const std::string name = fmt::format("cell.learnt[{}]", cell_.learnt.size());
        FieldReader learnt(item, std::string(source_), name);
        allow(item, source_, name, {"name", "initial"});
        learnt.field("name", cell_.learnt.emplace_back().name);
        learnt.optional("initial", cell_.learnt.back().initial);
      }
    }
    if (fields_.has("keep_gate")) cell_.keep_gate = small_integer(fields_, "keep_gate", -1, kMostGates - 1);
    if (fields_.has("overwrite_gate"))
      cell_.overwrite_gate = small_integer(fields_, "overwrite_gate", -1, kMostGates - 1);
    fields_.optional("spread_memory", cell_.spread_memory);
  }

  void read_nodes() {
    const Json& nodes = fields_.array("nodes");
    if (nodes.empty() || nodes.size() > static_cast<std::size_t>(kMostNodes)) {
      fields_.refuse("nodes", fmt::format("must be 1 to {} operations, not {}", kMostNodes, nodes.size()));
    }
    for (const Json& item : nodes) ids_.push_back(read_node(item));
    cell_.outputs = ids(fields_, "outputs");
  }

  /// Reads a list of nodes by their numbers in the file; folded and shared nodes have others here.
  std::vector<NodeId> ids(FieldReader& fields, const char* field) const {
    const auto last = static_cast<Index>(ids_.size()) - 1;
    std::vector<NodeId> found;
    for (const Json& item : fields.array(field)) {
      const std::string place = fmt::format("{}[{}]", field, found.size());
      if (last < 0) fields.refuse(place, "reads another node, and this is the first one");
      if (!item.is_number_integer() || item < 0 || item > last) {
        fields.refuse(place, fmt::format("must be 0 to {}, not {}", last, brief(item)));
      }
      found.push_back(ids_[item.get<std::size_t>()]);
    }
    return found;
  }

  NodeId read_node(const Json& item) {
    const std::string place = fmt::format("cell.nodes[{}]", ids_.size());
    FieldReader fields(item, std::string(source_), place);
    const std::string name = fields.string("op");
    Operation operation{};
    if (!find_operation(name, operation) || (operation > Operation::learnt && operation < Operation::constant)) {
      fields.refuse("op", in_quotes(name) + " is not an operation of cells");
    }
    if (operation == Operation::constant) {
      allow(item, source_, place, {"op", "value"});
      const double value = fields.number("value");
      if (!is_finite_float(value)) {
        fields.refuse("value", fmt::format("must be finite in 32 bits (3.4e38 at most), not {}", value));
      }
      return cell_.graph.constant(value);
    }
    if (arity(operation) == 0) {
      allow(item, source_, place, {"op", "index"});
      return cell_.graph.leaf(operation, small_integer(fields, "index", 0, kMostLearnt - 1));
    }
    allow(item, source_, place, {"op", "of"});
    std::vector<NodeId> of = ids(fields, "of");
    if (of.size() != static_cast<std::size_t>(arity(operation))) {
      fields.refuse("of", fmt::format("must be {} nodes for {}, not {}", arity(operation), name, of.size()));
    }
    of.resize(3, kNoNode);
    return cell_.graph.make(operation, of[0], of[1], of[2]);
  }

  const Json& json_;
  FieldReader fields_;
  std::string_view source_;
  CustomCell cell_;
  std::vector<NodeId> ids_;
};

}  // namespace

std::string to_json(const CustomCell& cell) {
  CellJson json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["name"] = cell.name;
  json["description"] = cell.description;
  json["kind"] = cell.scan ? "scan" : "dense";
  json["gates"] = cell.gates;
  json["states"] = cell.states;
  json["learnt"] = CellJson::array();
  for (const CellVector& learnt : cell.learnt) {
    json["learnt"].push_back({{"name", learnt.name}, {"initial", learnt.initial}});
  }
  json["keep_gate"] = cell.keep_gate;
  json["overwrite_gate"] = cell.overwrite_gate;
  json["spread_memory"] = cell.spread_memory;
  json["nodes"] = CellJson::array();
  for (NodeId id = 0; id < cell.graph.size(); ++id) json["nodes"].push_back(node_to_json(cell.graph[id]));
  json["outputs"] = cell.outputs;
  return json.dump();
}

CustomCell cell_from_json(std::string_view text, std::string_view source) {
  if (text.size() > kMostBytes) {
    fail(ErrorCode::bad_input, "{}: a cell is at most {} bytes of JSON, not {}", source, kMostBytes, text.size());
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    fail(ErrorCode::bad_input, "{}: a cell must be one JSON object, and this is not JSON", source);
  return CellReader(json, source).read();
}

}  // namespace penstock::custom
