#include "io/network_file.h"

#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/aligned.h"
#include "base/check.h"
#include "io/model_json.h"
#include "io/status_error.h"
#include "network/network_reader.h"

namespace penstock::io {
namespace {

using Json = nlohmann::json;
using network::Attribute;
using network::Constant;
using network::Network;
using network::Node;
using network::Value;

constexpr Index kNetworkFormat = 1;

/// The types of safetensors files for those of networks, in their order.
constexpr std::array kStored = {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean};
static_assert(static_cast<int>(network::Type::f32) == 0 && static_cast<int>(network::Type::f64) == 1 &&
              static_cast<int>(network::Type::i8) == 2 && static_cast<int>(network::Type::u8) == 3 &&
              static_cast<int>(network::Type::i32) == 4 && static_cast<int>(network::Type::i64) == 5 &&
              static_cast<int>(network::Type::boolean) == 6);

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
  const DType stored = kStored[static_cast<std::size_t>(constant.type)];
  tensors_.push_back({fmt::format("constant.{}", next), stored, constant.shape, constant.bytes});
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
        {{"value", input}, {"type", network::short_name_of(value.type)}, {"shape", value.shape}, {"axes", value.axes}});
  }
  for (const network::State& state : network.states) json["states"].push_back({state.input, state.output});
  for (const Node& each : network.nodes) json["nodes"].push_back(node(each));
  return json;
}

}  // namespace

void write_network(const std::string& path, const network::Network& network) {
  NetworkWriter writer;
  Json json = {{"format", kNetworkFormat}, {"network", writer.network(network)}};
  if (network.sample_rate > 0) json["sample_rate"] = network.sample_rate;
  write_safetensors(path, writer.tensors(), {{network_key, to_text(json)}, {checked_key, checked_text}});
}

network::Network read_network(const SafetensorsFile& file) {
  const auto found = file.metadata().find(network_key);
  if (found == file.metadata().end()) {
    fail(ErrorCode::incompatible, "{} holds no network: its metadata has no {}; 'penstock import' makes one",
         file.source(), network_key);
  }
  // Values that share a tensor share its memory.
  std::map<std::string, network::StoredTensor> tensors;
  const auto find = [&](const std::string& name) -> std::optional<network::StoredTensor> {
    if (const auto known = tensors.find(name); known != tensors.end()) return known->second;
    const TensorInfo* const info = file.find(name);
    if (info == nullptr) return std::nullopt;
    const std::span<const std::byte> bytes = file.bytes(*info);
    const auto memory = std::make_shared<const AlignedVector<std::byte>>(bytes.begin(), bytes.end());
    const network::StoredTensor tensor{to_string(info->dtype), info->shape, {memory->data(), memory->size()}, memory};
    return tensors.emplace(name, tensor).first->second;
  };
  Network network;
  require_ok(network::read_network(found->second, find, network), file.source() + ": ");
  return network;
}

}  // namespace penstock::io
