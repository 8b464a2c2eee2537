#include "network/network_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json_reader.h"
#include "network/check_file.h"
#include "network/tensor.h"

namespace penstock::network {

namespace {

constexpr Index kFormat = 1;
constexpr Index kMostNumber = (Index{1} << 31) - 1;  // values and tensors are numbered by ints
constexpr Index kMostExtent = Index{1} << 40;
constexpr double kHighestRate = 1e9;

struct NamedType {
  Type type;
  std::string_view stored, name;
};
constexpr NamedType kTypes[] = {{Type::f32, "F32", "f32"},      {Type::f64, "F64", "f64"}, {Type::i8, "I8", "i8"},
                                {Type::u8, "U8", "u8"},         {Type::i32, "I32", "i32"}, {Type::i64, "I64", "i64"},
                                {Type::boolean, "BOOL", "bool"}};

constexpr bool are_in_order() {
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(are_in_order(), "short_name_of() finds a type by its number");

/// The fields of an object: each is there once, but for those behind the first `least`.
class Fields {
 public:
  Fields(std::initializer_list<std::string_view> names, std::size_t least) : names_(names), least_(least) {}

  /// Whether a field is one of them, and new.
  bool take(std::string_view name) {
    const auto place = static_cast<unsigned>(std::ranges::find(names_, name) - names_.begin());
    const unsigned bit = 1U << place;
    const bool is_new = place < names_.size() && (taken_ & bit) == 0;
    taken_ |= bit;
    return is_new;
  }
  bool complete() const { return (~taken_ & ((1U << least_) - 1)) == 0; }

 private:
  std::vector<std::string_view> names_;
  std::size_t least_;
  unsigned taken_ = 0;
};

class NetworkReader {
 public:
  NetworkReader(std::string_view json, const FindTensor& find) : json_(json, "its network"), find_(find) {}

  Status read(Network& whole) {
    const auto field = [&](std::string_view key) {
      if (key == "format") return format();
      if (key == "network") return network(whole, 0);
      if (!json_.number(whole.sample_rate)) return false;
      return (whole.sample_rate > 0 && whole.sample_rate < kHighestRate) || json_.mistake("a sample rate in Hz");
    };
    const bool read = object({{"format", "network", "sample_rate"}, 2}, "format and network, each once,", field);
    if (!status_.ok() || (read && json_.finish())) return status_;
    constexpr std::size_t most = 100;  // letters of a place, so that the problem is seen
    if (place_.size() > most) place_ = place_.substr(0, most) + "...";
    return Status::bad_input(place_.empty() ? json_.problem() : place_ + " in " + json_.problem());
  }

 private:
  struct Input {
    Index value = -1;
    Value what;
  };
  using Pair = std::pair<int, int>;

  /// Calls read(key) for each field of an object.
  template <class Read>
  bool object(Fields fields, const char* expected, const Read& read) {
    const auto field = [&](std::string_view key) { return fields.take(key) ? read(key) : json_.mistake(expected); };
    return json_.object(field) && (fields.complete() || json_.mistake(expected));
  }

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
    const auto field = [&](std::string_view key) {
      if (key == "value") return json_.integer(input.value);
      if (key == "type") return json_.string(type);
      return key == "shape" ? integers(input.what.shape) : strings(input.what.axes);
    };
    const Fields fields({"value", "type", "shape", "axes"}, 4);
    if (!object(fields, "value, type, shape and axes, each once,", field)) return false;
    const auto* const found = std::ranges::find(kTypes, type, &NamedType::name);
    if (found == std::end(kTypes)) return json_.mistake("the type f32, f64, i8, u8, i32, i64 or bool");
    input.what.type = found->type;
    const auto possible = [](Index extent) { return extent >= -1 && extent <= kMostExtent; };
    return std::ranges::all_of(input.what.shape, possible) || json_.mistake("an input with possible extents");
  }

  bool attribute(Attribute& attribute) {
    const auto field = [&](std::string_view key) {
      if (key == "name") return json_.string(attribute.name);
      if (key == "text") return json_.string(attribute.text);
      if (key == "integers") return integers(attribute.integers);
      return json_.array([&] {
        double value = 0;
        if (!json_.number(value)) return false;
        if (std::abs(value) > std::numeric_limits<float>::max()) return json_.mistake("a float of 32 bits");
        attribute.numbers.push_back(static_cast<float>(value));
        return true;
      });
    };
    const Fields fields({"name", "text", "integers", "numbers"}, 1);
    return object(fields, "name, and text, integers or numbers, each once,", field);
  }

  bool node(Node& node, int depth) {
    const auto field = [&](std::string_view key) {
      if (key == "op") return json_.string(node.op) && (!node.op.empty() || json_.mistake("an operator"));
      if (key == "name") return json_.string(node.name);
      if (key == "reads") return numbers(node.reads, -1);
      if (key == "writes") return numbers(node.writes, -1);
      if (key == "attributes") {
        return json_.array([&] {
          const std::size_t item = node.attributes.size();
          return attribute(node.attributes.emplace_back()) || within("attributes", item);
        });
      }
      return json_.array([&] {
        const std::size_t item = node.bodies.size();
        return network(node.bodies.emplace_back(), depth + 1) || within("bodies", item);
      });
    };
    const Fields fields({"op", "name", "reads", "writes", "attributes", "bodies"}, 4);
    return object(fields, "op, name, reads and writes, and attributes or bodies, each once,", field);
  }

  bool network(Network& network, int depth) {
    static_assert(kMostDepth == 32);
    if (depth > kMostDepth) return json_.mistake("at most 32 nested networks");
    std::vector<std::string> names;
    std::vector<Pair> constants;
    std::vector<Input> inputs;
    const auto field = [&](std::string_view key) {
      if (key == "values") return strings(names);
      if (key == "constants") return pairs(constants);
      if (key == "inputs") return json_.array([&] { return input(inputs.emplace_back()); });
      if (key == "outputs") return numbers(network.outputs, 0);
      if (key == "states") return pairs(network.states);
      return json_.array([&] {
        const std::size_t item = network.nodes.size();
        return node(network.nodes.emplace_back(), depth) || within("nodes", item);
      });
    };
    const Fields fields({"values", "constants", "inputs", "outputs", "states", "nodes"}, 6);
    if (!object(fields, "values, constants, inputs, outputs, states and nodes, each once,", field)) return false;
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
