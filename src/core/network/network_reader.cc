#include "network/network_reader.h"

#include <algorithm>
#include <utility>

#include "base/json_reader.h"
#include "network/check_file.h"
#include "network/tensor.h"

namespace penstock::network {

namespace {

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
  NetworkReader(std::string_view json, const FindTensor& find) : json_(json, "its network"), find_(find) {}

  Status read(Network& whole) {
    const bool read = json_.object([&](std::string_view key) {
      if (key == "format") return format();
      if (key == "network" && whole.values.empty()) return network(whole, 0);
      return json_.mistake("format and network, each once,");
    });
    if (!status_.ok() || (read && json_.finish())) return status_;
    return Status::bad_input(place_.empty() ? json_.problem() : place_ + " in " + json_.problem());
  }

 private:
  struct Input {
    Index value = -1;
    Value what;
  };
  using Pair = std::pair<int, int>;

  bool format() {
    Index format = 0;
    if (!json_.integer(format)) return false;
    if (format == kFormat) return true;
    return refuse({Status::Code::incompatible, "it has the format " + text_of(format) +
                                                   " of networks, and this version reads " + text_of(kFormat) +
                                                   ": use a newer penstock"});
  }
  /// Adds an item of a list to the place of a mistake. Returns false.
  bool within(const char* list, std::size_t item) {
    place_ = std::string(list) + "[" + std::to_string(item) + "]" + (place_.empty() ? "" : ".") + place_;
    return false;
  }

  bool number(int& value, Index least) {
    Index read = 0;
    if (!json_.integer(read)) return false;
    if (read < least || read > kMostNumber) return json_.mistake("the number of a value or a tensor");
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

  bool attribute(Attribute& attribute) {
    return json_.object([&](std::string_view key) {
      if (key == "name") return json_.string(attribute.name);
      if (key == "text") return json_.string(attribute.text);
      if (key == "integers" && attribute.integers.empty()) return integers(attribute.integers);
      if (key != "numbers" || !attribute.numbers.empty())
        return json_.mistake("name, text, integers or numbers, each once,");
      return json_.array([&] {
        double value = 0;
        if (!json_.number(value)) return false;
        attribute.numbers.push_back(static_cast<float>(value));
        return true;
      });
    });
  }

  bool node(Node& node, int depth) {
    return json_.object([&](std::string_view key) {
      if (key == "op") return json_.string(node.op);
      if (key == "name") return json_.string(node.name);
      if (key == "reads" && node.reads.empty()) return numbers(node.reads, -1);
      if (key == "writes" && node.writes.empty()) return numbers(node.writes, -1);
      if (key == "attributes" && node.attributes.empty()) {
        return json_.array([&] {
          const std::size_t item = node.attributes.size();
          return attribute(node.attributes.emplace_back()) || within("attributes", item);
        });
      }
      if (key != "bodies" || !node.bodies.empty())
        return json_.mistake("op, name, reads, writes, attributes or bodies, each once,");
      return json_.array([&] {
        const std::size_t item = node.bodies.size();
        return network(node.bodies.emplace_back(), depth + 1) || within("bodies", item);
      });
    });
  }

  bool network(Network& network, int depth) {
    if (depth > kMostDepth) return json_.mistake("fewer networks in networks");
    std::vector<std::string> names;
    std::vector<Pair> constants;
    std::vector<Input> inputs;
    const bool read = json_.object([&](std::string_view key) {
      if (key == "values" && names.empty()) return strings(names);
      if (key == "constants" && constants.empty()) return pairs(constants);
      if (key == "inputs" && inputs.empty()) return json_.array([&] { return input(inputs.emplace_back()); });
      if (key == "outputs" && network.outputs.empty()) return numbers(network.outputs, 0);
      if (key == "states" && network.states.empty()) return pairs(network.states);
      if (key != "nodes" || !network.nodes.empty())
        return json_.mistake("values, constants, inputs, outputs, states or nodes, each once,");
      return json_.array([&] {
        const std::size_t item = network.nodes.size();
        return node(network.nodes.emplace_back(), depth) || within("nodes", item);
      });
    });
    if (!read) return false;
    for (std::string& name : names) network.values.push_back({.name = std::move(name)});
    for (const auto& [value, tensor] : constants) {
      if (!constant(network, static_cast<std::size_t>(value), tensor)) return false;
    }
    for (Input& input : inputs) {
      if (input.value < 0 || input.value >= static_cast<Index>(network.values.size())) {
        return refuse(Status::bad_input("its network: an input is a value that there is not"));
      }
      Value& value = network.values[static_cast<std::size_t>(input.value)];
      value.type = input.what.type;
      value.shape = std::move(input.what.shape);
      value.axes = std::move(input.what.axes);
      network.inputs.push_back(static_cast<int>(input.value));
    }
    return true;
  }

  bool constant(Network& network, std::size_t value, int number) {
    if (value >= network.values.size() || network.values[value].constant >= 0) {
      return refuse(Status::bad_input("its network: constants name the value " + std::to_string(value) +
                                      ", which is another constant or not there"));
    }
    const std::string name = "constant." + std::to_string(number);
    const std::optional<StoredTensor> tensor = find_(name);
    if (!tensor) return refuse(Status::bad_input("its network needs the tensor " + name + ", which is missing"));
    const auto* const type = std::ranges::find(kTypes, tensor->type, &NamedType::stored);
    if (type == std::end(kTypes)) {
      return refuse(Status::bad_input("tensor " + name + " has the type " + std::string(tensor->type) +
                                      ", which no network has"));
    }
    Value& of = network.values[value];
    of.constant = static_cast<int>(network.constants.size());
    of.type = type->type, of.shape = tensor->shape;
    network.constants.push_back({type->type, tensor->shape, tensor->bytes, tensor->owner});
    return true;
  }
  bool refuse(Status status) {
    status_ = std::move(status);
    return false;
  }

  JsonReader json_;
  const FindTensor& find_;
  Status status_;
  std::string place_;  ///< "nodes[3].bodies[0]", of a mistake.
};

}  // namespace

Status read_network(std::string_view json, const FindTensor& find, Network& network) {
  PENSTOCK_TRY(NetworkReader(json, find).read(network));
  return check(network);
}

std::string_view short_name_of(Type type) { return kTypes[static_cast<int>(type)].name; }

}  // namespace penstock::network
