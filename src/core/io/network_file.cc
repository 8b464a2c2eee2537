#include "io/network_file.h"

#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/aligned.h"
#include "base/check.h"
#include "base/json_fields.h"
#include "io/model_json.h"
#include "io/status_error.h"
#include "network/check.h"
#include "network/tensor.h"

namespace penstock::io {
namespace {

using Json = nlohmann::json;
using network::Attribute;
using network::Constant;
using network::Network;
using network::Node;
using network::Type;
using network::Value;

constexpr Index kNetworkFormat = 1;
constexpr Index kMostNumber = (Index{1} << 31) - 1;  // values and tensors are numbered by ints

struct NamedType {
  Type type;
  DType stored;
  const char* name;
};
constexpr std::array kTypes = {NamedType{Type::f32, DType::f32, "f32"},
                               NamedType{Type::f64, DType::f64, "f64"},
                               NamedType{Type::i8, DType::i8, "i8"},
                               NamedType{Type::u8, DType::u8, "u8"},
                               NamedType{Type::i32, DType::i32, "i32"},
                               NamedType{Type::i64, DType::i64, "i64"},
                               NamedType{Type::boolean, DType::boolean, "bool"}};

Type parse_type(std::string_view name) {
  const auto* const found =
      std::ranges::find(kTypes, name, [](const NamedType& each) { return std::string_view(each.name); });
  if (found == kTypes.end()) fail_choice("type", name, {"f32", "f64", "i8", "u8", "i32", "i64", "bool"});
  return found->type;
}

/// Writes a network, and collects the tensors of its constants.
class NetworkWriter {
 public:
  Json network(const Network& network);
  const std::vector<TensorData>& tensors() const { return tensors_; }

 private:
  Index tensor_of(const Constant& constant);
  Json node(const Node& node);

  std::vector<TensorData> tensors_;
  std::map<std::pair<const std::byte*, network::Shape>, Index> numbers_;  // captured constants share their bytes
};

Index NetworkWriter::tensor_of(const Constant& constant) {
  const auto next = static_cast<Index>(tensors_.size());
  if (!constant.bytes.empty()) {
    const auto [found, is_new] = numbers_.try_emplace({constant.bytes.data(), constant.shape}, next);
    if (!is_new) return found->second;
  }
  const auto* const type = std::ranges::find(kTypes, constant.type, &NamedType::type);
  tensors_.push_back({fmt::format("constant.{}", next), type->stored, constant.shape, constant.bytes});
  return next;
}

Json NetworkWriter::node(const Node& node) {
  Json attributes = Json::array(), bodies = Json::array();
  for (const Attribute& attribute : node.attributes) {
    Json json = {{"name", attribute.name}};
    if (!attribute.integers.empty()) {
      json["integers"] = attribute.integers;
    } else if (!attribute.numbers.empty()) {
      json["numbers"] = attribute.numbers;
    } else if (!attribute.text.empty()) {
      json["text"] = attribute.text;
    } else {
      json["integers"] = Json::array();
    }
    attributes.push_back(std::move(json));
  }
  for (const Network& body : node.bodies) bodies.push_back(network(body));
  Json json = {{"op", node.op}, {"name", node.name}, {"reads", node.reads}, {"writes", node.writes}};
  if (!attributes.empty()) json["attributes"] = std::move(attributes);
  if (!bodies.empty()) json["bodies"] = std::move(bodies);
  return json;
}

Json NetworkWriter::network(const Network& network) {
  Json json = {{"outputs", network.outputs}};
  json["values"] = json["constants"] = json["inputs"] = json["states"] = json["nodes"] = Json::array();
  for (std::size_t i = 0; i < network.values.size(); ++i) {
    const Value& value = network.values[i];
    json["values"].push_back(value.name);
    if (value.constant < 0) continue;
    json["constants"].push_back({i, tensor_of(network.constants[static_cast<std::size_t>(value.constant)])});
  }
  for (const int input : network.inputs) {
    const Value& value = network.values[static_cast<std::size_t>(input)];
    json["inputs"].push_back(
        {{"value", input}, {"type", to_string(value.type)}, {"shape", value.shape}, {"axes", value.axes}});
  }
  for (const network::State& state : network.states) json["states"].push_back({state.input, state.output});
  for (const Node& each : network.nodes) json["nodes"].push_back(node(each));
  return json;
}

/// Reads a network from untrusted JSON.
class NetworkReader {
 public:
  explicit NetworkReader(const SafetensorsFile& file) : file_(file) {}

  Network network(const Json& json, const std::string& place, int depth);

 private:
  std::vector<int> numbers(FieldReader& reader, const char* field, Index least) const;
  void read_constants(FieldReader& reader, Network& network);
  Value input(const Json& json, const std::string& place, Network& network) const;
  Node node(const Json& json, const std::string& place, int depth);
  Constant constant(Index tensor, const std::string& place);

  const SafetensorsFile& file_;
  std::map<Index, Constant> constants_;
};

std::vector<int> NetworkReader::numbers(FieldReader& reader, const char* field, Index least) const {
  std::vector<int> values;
  reader.list(field, "integers", values, [&](const Json& each) {
    if (!each.is_number_integer()) return false;
    const auto value = each.get<Index>();
    return value >= least && value <= kMostNumber;
  });
  return values;
}

Constant NetworkReader::constant(Index tensor, const std::string& place) {
  if (const auto found = constants_.find(tensor); found != constants_.end()) return found->second;
  const std::string name = fmt::format("constant.{}", tensor);
  const TensorInfo* const info = file_.find(name);
  if (info == nullptr)
    fail(ErrorCode::bad_input, "{}: {} needs the tensor {}, which is missing", file_.source(), place, name);
  const auto* const type = std::ranges::find(kTypes, info->dtype, &NamedType::stored);
  if (type == kTypes.end()) {
    fail(ErrorCode::bad_input, "{}: tensor {} has the type {}, which no network has", file_.source(), name,
         to_string(info->dtype));
  }
  const std::span<const std::byte> bytes = file_.bytes(*info);
  const auto memory = std::make_shared<const AlignedVector<std::byte>>(bytes.begin(), bytes.end());
  const Constant made{type->type, info->shape, {memory->data(), memory->size()}, memory};
  return constants_.emplace(tensor, made).first->second;
}

void NetworkReader::read_constants(FieldReader& reader, Network& network) {
  for (const Json& pair : reader.array("constants")) {
    const auto is_number = [&](const Json& each) {
      return each.is_number_integer() && each.get<Index>() >= 0 && each.get<Index>() <= kMostNumber;
    };
    if (!pair.is_array() || pair.size() != 2 || !is_number(pair[0]) || !is_number(pair[1])) {
      reader.refuse("constants", fmt::format("must hold pairs of a value and a tensor, not {}", brief(pair)));
    }
    const auto value = pair[0].get<std::size_t>();
    if (value >= network.values.size() || network.values[value].constant >= 0) {
      reader.refuse("constants", fmt::format("names the value {}, which is another constant or not there", value));
    }
    network.constants.push_back(constant(pair[1].get<Index>(), "a constant"));
    network.values[value].constant = static_cast<int>(network.constants.size()) - 1;
    network.values[value].type = network.constants.back().type;
    network.values[value].shape = network.constants.back().shape;
  }
}

Value NetworkReader::input(const Json& json, const std::string& place, Network& network) const {
  FieldReader reader(json, file_.source(), place);
  const Index number = reader.integer("value", 0, static_cast<Index>(network.values.size()) - 1);
  Value value{.name = network.values[static_cast<std::size_t>(number)].name, .type = reader.parsed("type", parse_type)};
  constexpr Index most_extent = Index{1} << 40;
  reader.list("shape", "extents", value.shape, [](const Json& each) {
    return each.is_number_integer() && each.get<Index>() >= -1 && each.get<Index>() <= most_extent;
  });
  reader.field("axes", value.axes);
  reader.finish();
  network.inputs.push_back(static_cast<int>(number));
  return value;
}

Node NetworkReader::node(const Json& json, const std::string& place, int depth) {
  FieldReader reader(json, file_.source(), place);
  Node node{.op = reader.string("op"), .name = reader.string("name")};
  node.reads = numbers(reader, "reads", -1);
  node.writes = numbers(reader, "writes", -1);
  if (reader.has("attributes")) {
    reader.objects("attributes", node.attributes, [](FieldReader& of, Attribute& attribute) {
      of.field("name", attribute.name);
      if (of.has("integers")) of.list("integers", "integers", attribute.integers, &Json::is_number_integer);
      of.optional("numbers", attribute.numbers);
      of.optional("text", attribute.text);
    });
  }
  if (reader.has("bodies")) {
    for (const Json& body : reader.array("bodies")) {
      node.bodies.push_back(network(body, fmt::format("{}.bodies[{}]", place, node.bodies.size()), depth + 1));
    }
  }
  reader.finish();
  return node;
}

Network NetworkReader::network(const Json& json, const std::string& place, int depth) {
  if (depth > network::kMostDepth)
    fail(ErrorCode::bad_input, "{}: networks in networks, {} deep", file_.source(), depth);
  FieldReader reader(json, file_.source(), place);
  Network network;
  std::vector<std::string> names;
  reader.field("values", names);
  for (std::string& name : names) network.values.push_back({.name = std::move(name)});
  read_constants(reader, network);
  for (const Json& each : reader.array("inputs")) {
    Value value = input(each, fmt::format("{}.inputs[{}]", place, network.inputs.size()), network);
    Value& target = network.values[static_cast<std::size_t>(network.inputs.back())];
    value.constant = target.constant;
    target = std::move(value);
  }
  network.outputs = numbers(reader, "outputs", 0);
  for (const Json& pair : reader.array("states")) {
    const auto is_number = [&](const Json& each) {
      return each.is_number_integer() && each.get<Index>() >= 0 && each.get<Index>() <= kMostNumber;
    };
    if (!pair.is_array() || pair.size() != 2 || !is_number(pair[0]) || !is_number(pair[1])) {
      reader.refuse("states", fmt::format("must hold pairs of an input and an output, not {}", brief(pair)));
    }
    network.states.push_back({pair[0].get<int>(), pair[1].get<int>()});
  }
  for (const Json& each : reader.array("nodes")) {
    network.nodes.push_back(node(each, fmt::format("{}.nodes[{}]", place, network.nodes.size()), depth));
  }
  reader.finish();
  return network;
}

}  // namespace

const char* to_string(network::Type type) { return std::ranges::find(kTypes, type, &NamedType::type)->name; }

void write_network(const std::string& path, const network::Network& network) {
  NetworkWriter writer;
  const Json json = {{"format", kNetworkFormat}, {"network", writer.network(network)}};
  write_safetensors(path, writer.tensors(), {{network_key, to_text(json)}, {checked_key, checked_text}});
}

network::Network read_network(const SafetensorsFile& file) {
  const auto found = file.metadata().find(network_key);
  if (found == file.metadata().end()) {
    fail(ErrorCode::incompatible,
         "{} holds no network: its metadata has no {}; 'penstock import' makes one of an ONNX file", file.source(),
         network_key);
  }
  const Json json = parse_object(found->second, file.source(), network_key);
  FieldReader reader(json, file.source(), network_key);
  if (const Index format = reader.integer("format"); format != kNetworkFormat) {
    fail(ErrorCode::incompatible, "{} has the format {} of networks, and this version reads {}: use a newer penstock",
         file.source(), format, kNetworkFormat);
  }
  Network network = NetworkReader(file).network(reader.object("network"), network_key, 0);
  reader.finish();
  require_ok(network::check(network), file.source() + ": ");
  return network;
}

}  // namespace penstock::io
