#include "runtime/network_reader.h"

#include <algorithm>
#include <utility>

#include "network/cell.h"
#include "network/check.h"
#include "network/tensor.h"
#include "runtime/custom_cell.h"
#include "runtime/json.h"

namespace penstock::runtime {

namespace {

using network::Network;
using network::Type;

constexpr Index kFormat = 1;
constexpr Index kMostNumber = (Index{1} << 31) - 1;  // values and tensors are numbered by ints
constexpr Index kMostExtent = Index{1} << 40;

struct NamedType {
  Type type;
  std::string_view stored, name;
};
constexpr NamedType kTypes[] = {{Type::f32, "F32", "f32"},      {Type::f64, "F64", "f64"}, {Type::i8, "I8", "i8"},
                                {Type::u8, "U8", "u8"},         {Type::i32, "I32", "i32"}, {Type::i64, "I64", "i64"},
                                {Type::boolean, "BOOL", "bool"}};

class NetworkReader {
 public:
  NetworkReader(const TensorFile& file, Failure& failure)
      : file_(file), failure_(failure), json_(*file.network(), "its network", failure) {}

  bool read(Network& whole) {
    Index format = 0;
    const bool read = json_.object([&](std::string_view key) {
      if (key == "format") return json_.integer(format);
      if (key == "network" && whole.values.empty()) return network(whole, 0);
      return json_.mistake("format and network, each once,");
    });
    if (!read || !json_.finish()) return false;
    if (format == kFormat) return true;
    return failure_.in_file(PENSTOCK_INCOMPATIBLE,
                            "it has the format %lld of networks, and this version of Penstock reads %lld",
                            static_cast<long long>(format), static_cast<long long>(kFormat));
  }

 private:
  struct Input {
    Index value = -1;
    network::Value what;
  };
  using Pair = std::pair<int, int>;

  bool number(int& value, Index least) {
    Index read = 0;
    if (!json_.integer(read)) return false;
    if (read < least || read > kMostNumber) return json_.mistake("a smaller number, not negative,");
    value = static_cast<int>(read);
    return true;
  }
  bool numbers(std::vector<int>& list, Index least) {
    return json_.array([&] { return number(list.emplace_back(), least); });
  }
  template <class Item>
  bool pairs(std::vector<Item>& list) {
    return json_.array([&] {
      std::vector<int> both;
      if (!numbers(both, 0)) return false;
      if (both.size() != 2) return json_.mistake("pairs of numbers");
      list.push_back({both[0], both[1]});
      return true;
    });
  }
  bool strings(std::vector<std::string>& list) {
    return json_.array([&] { return json_.string(list.emplace_back()); });
  }
  bool integers(std::vector<Index>& list) {
    return json_.array([&] { return json_.integer(list.emplace_back()); });
  }

  bool input(Input& input) {
    std::string type;
    const bool read = json_.object([&](std::string_view key) {
      if (key == "value") return json_.integer(input.value);
      if (key == "type") return json_.string(type);
      if (key == "shape" && input.what.shape.empty()) return integers(input.what.shape);
      if (key == "axes" && input.what.axes.empty()) return strings(input.what.axes);
      return json_.mistake("value, type, shape and axes, each once,");
    });
    if (!read) return false;
    const auto* const found = std::ranges::find(kTypes, type, &NamedType::name);
    if (found == std::end(kTypes)) return json_.mistake("an input of a type that networks have");
    input.what.type = found->type;
    const auto possible = [](Index extent) { return extent >= -1 && extent <= kMostExtent; };
    return std::ranges::all_of(input.what.shape, possible) || json_.mistake("an input with possible extents");
  }

  bool attribute(network::Attribute& attribute) {
    return json_.object([&](std::string_view key) {
      if (key == "name") return json_.string(attribute.name);
      if (key == "text") return json_.string(attribute.text);
      if (key == "integers" && attribute.integers.empty()) return integers(attribute.integers);
      if (key != "numbers" || !attribute.numbers.empty()) return json_.mistake("a field of attributes, once,");
      return json_.array([&] {
        double value = 0;
        if (!json_.number(value)) return false;
        attribute.numbers.push_back(static_cast<float>(value));
        return true;
      });
    });
  }

  bool node(network::Node& node, int depth) {
    return json_.object([&](std::string_view key) {
      if (key == "op") return json_.string(node.op);
      if (key == "name") return json_.string(node.name);
      if (key == "reads" && node.reads.empty()) return numbers(node.reads, -1);
      if (key == "writes" && node.writes.empty()) return numbers(node.writes, -1);
      if (key == "attributes" && node.attributes.empty()) {
        return json_.array([&] { return attribute(node.attributes.emplace_back()); });
      }
      if (key != "bodies" || !node.bodies.empty()) return json_.mistake("a field of nodes, once,");
      return json_.array([&] { return network(node.bodies.emplace_back(), depth + 1); });
    });
  }

  bool network(Network& network, int depth) {
    if (depth > network::kMostDepth) return json_.mistake("fewer networks in networks");
    std::vector<std::string> names;
    std::vector<Pair> constants;
    std::vector<Input> inputs;
    const bool read = json_.object([&](std::string_view key) {
      if (key == "values" && names.empty()) return strings(names);
      if (key == "constants" && constants.empty()) return pairs(constants);
      if (key == "inputs" && inputs.empty()) return json_.array([&] { return input(inputs.emplace_back()); });
      if (key == "outputs" && network.outputs.empty()) return numbers(network.outputs, 0);
      if (key == "states" && network.states.empty()) return pairs(network.states);
      if (key != "nodes" || !network.nodes.empty()) return json_.mistake("a field of networks, once,");
      return json_.array([&] { return node(network.nodes.emplace_back(), depth); });
    });
    if (!read) return false;
    for (std::string& name : names) network.values.push_back({.name = std::move(name)});
    for (const auto& [value, tensor] : constants) {
      if (!constant(network, static_cast<std::size_t>(value), tensor)) return false;
    }
    for (Input& input : inputs) {
      if (input.value < 0 || input.value >= static_cast<Index>(network.values.size())) {
        return failure_.in_file(PENSTOCK_BAD_INPUT, "its network: an input is a value that there is not");
      }
      network::Value& value = network.values[static_cast<std::size_t>(input.value)];
      value.type = input.what.type;
      value.shape = std::move(input.what.shape);
      value.axes = std::move(input.what.axes);
      network.inputs.push_back(static_cast<int>(input.value));
    }
    return true;
  }

  bool constant(Network& network, std::size_t value, int number) {
    if (value >= network.values.size() || network.values[value].constant >= 0) {
      return failure_.in_file(PENSTOCK_BAD_INPUT, "its network: value %zu is another constant or not there", value);
    }
    const std::string name = "constant." + std::to_string(number);
    const std::optional<std::size_t> found = file_.find(name);
    if (!found) return failure_.in_file(PENSTOCK_BAD_INPUT, "its network needs the tensor %s", name.c_str());
    const Tensor& tensor = file_.tensors()[*found];
    const auto* const type = std::ranges::find(kTypes, tensor.type, &NamedType::stored);
    if (type == std::end(kTypes)) {
      return failure_.in_file(PENSTOCK_BAD_INPUT, "tensor %s has the type %.*s, which no network has", name.c_str(),
                              static_cast<int>(tensor.type.size()), tensor.type.data());
    }
    const std::string_view bytes = file_.bytes(tensor);
    network::Value& of = network.values[value];
    of.constant = static_cast<int>(network.constants.size());
    of.type = type->type, of.shape = tensor.shape;
    network.constants.push_back(
        {type->type, tensor.shape, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}});
    return true;
  }

  const TensorFile& file_;
  Failure& failure_;
  JsonReader json_;
};

}  // namespace

bool require_ok(const network::Status& status, Failure& failure) {
  using Code = network::Status::Code;
  if (status.ok()) return true;
  std::string line = status.text;  // with names from a file that nobody has vetted
  for (char& c : line) c = c >= ' ' && c <= '~' ? c : '?';
  const penstock_status code = status.code == Code::invalid_argument ? PENSTOCK_INVALID_ARGUMENT
                               : status.code == Code::unsupported    ? PENSTOCK_UNSUPPORTED
                               : status.code == Code::out_of_memory  ? PENSTOCK_OUT_OF_MEMORY
                                                                     : PENSTOCK_BAD_INPUT;
  return failure.in_file(code, "%s", line.c_str());
}

bool read_network(const TensorFile& file, network::Network& network, Failure& failure) {
  if (file.network() == nullptr) {
    return failure.in_file(PENSTOCK_INCOMPATIBLE,
                           file.describes_model()
                               ? "a model of 'penstock train', not a network: open it by penstock_model_open()"
                               : "no network: 'penstock import' makes one of an ONNX file");
  }
  if (!file.has_checksum()) return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: networks carry a checksum");
  return NetworkReader(file, failure).read(network) && require_ok(network::check(network), failure);
}

}  // namespace penstock::runtime

namespace penstock::network {

Status read_custom_cell(std::string_view json, std::shared_ptr<const custom::DerivedCell>& cell) {
  runtime::Failure failure("its cell");
  runtime::JsonReader reader(json, "JSON", failure);
  std::string name;
  if (runtime::read_custom_cell(reader, name, cell, failure) && reader.finish()) return {};
  penstock_error error = {};
  failure.report(&error);
  return Status::bad_input(error.text);
}

}  // namespace penstock::network
