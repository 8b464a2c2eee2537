// The recurrent layers of an ONNX file as weights: the file becomes a network, and folding computes what it stores.

#include "io/onnx/read/layers.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "base/check.h"
#include "io/onnx/read/graph_to_network.h"
#include "io/onnx/read/import.h"
#include "io/onnx/read/simplify.h"
#include "io/status_error.h"
#include "network/network_reader.h"
#include "network/tensor.h"

namespace penstock::io::onnx {
namespace {

using network::Network;
using network::Node;

constexpr std::string_view kLayers[] = {"LSTM", "GRU", "RNN"};

bool is_layer(const NodeMessage& node) { return std::ranges::find(kLayers, node.op) != std::end(kLayers); }

/// How many recurrent nodes have each name, those of bodies and functions included.
void count_names(const std::vector<NodeMessage>& nodes, std::map<std::string_view, int>& counts) {
  for (const NodeMessage& node : nodes) {
    if (is_layer(node)) ++counts[node.name];
    for (const AttributeMessage& attribute : node.attributes) {
      for (const GraphMessage& body : attribute.graphs) count_names(body.nodes, counts);
    }
  }
}

/// Whether there are layers in the graphs of a node.
bool has_layers(const NodeMessage& node) {
  return std::ranges::any_of(node.attributes, [](const AttributeMessage& attribute) {
    return std::ranges::any_of(attribute.graphs, [](const GraphMessage& graph) {
      return std::ranges::any_of(graph.nodes,
                                 [](const NodeMessage& each) { return is_layer(each) || has_layers(each); });
    });
  });
}

/// A network. If it is the body of a node, also that node and the network around it.
struct Level {
  const Network& network;
  const Node* node = nullptr;
  const Level* outer = nullptr;
};

/// Where values come from, but for shapes: from inputs of the model, or from constants other than zero.
class Origins {
 public:
  explicit Origins(std::string source) : source_(std::move(source)) {}

  /// Returns whether a value comes from such constants, and from no input.
  bool is_stored(const Level& level, int value) {
    ++traces_;
    stored_ = given_ = false;
    left_.clear();
    bodies_.clear();
    for (push(level, value); !left_.empty() && !given_;) {
      const Place place = left_.back();
      left_.pop_back();
      trace(*place.level, place.value);
    }
    return stored_ && !given_;
  }

 private:
  static constexpr Index kMostSteps = 10'000'000;  // of all traces: states can share what they come from

  struct Place {
    const Level* level;
    int value;
  };
  /// What writes a value.
  struct Writer {
    const Node* node = nullptr;
    std::ptrdiff_t result = 0;
    std::ptrdiff_t input = -1;      ///< Or its position among the inputs.
    Index traced = 0;               ///< The number of the last trace that met it.
    std::optional<bool> zero = {};  ///< Of a constant that was looked at.
  };

  std::vector<Writer>& writers_of(const Network& network) {
    const auto [found, is_new] = writers_.try_emplace(&network);
    std::vector<Writer>& writers = found->second;
    if (!is_new) return writers;
    writers.resize(network.values.size());
    for (const Node& node : network.nodes) {
      for (std::size_t i = 0; i < node.writes.size(); ++i) {
        if (node.writes[i] < 0) continue;
        writers[static_cast<std::size_t>(node.writes[i])] = {&node, static_cast<std::ptrdiff_t>(i)};
      }
    }
    for (std::size_t i = 0; i < network.inputs.size(); ++i) {
      writers[static_cast<std::size_t>(network.inputs[i])].input = static_cast<std::ptrdiff_t>(i);
    }
    return writers;
  }

  void push(const Level& level, int value) {
    if (value >= 0) left_.push_back({&level, value});
  }

  void trace(const Level& level, int value) {
    if (++steps_ > kMostSteps) {
      fail(ErrorCode::bad_input, "{}: finding where its states come from takes more than {} steps", source_,
           kMostSteps);
    }
    const Network& network = level.network;
    Writer& writer = writers_of(network)[static_cast<std::size_t>(value)];
    if (std::exchange(writer.traced, traces_) == traces_) return;
    if (const int constant = network.values[static_cast<std::size_t>(value)].constant; constant >= 0) {
      if (!writer.zero) writer.zero = is_zero(network.constants[static_cast<std::size_t>(constant)]);
      stored_ = stored_ || !*writer.zero;
    } else if (writer.input >= 0 && level.outer == nullptr) {
      given_ = true;
    } else if (writer.input >= 0) {
      const std::ptrdiff_t read = writer.input + (level.node->op == "If" ? 1 : 0);
      push(*level.outer, level.node->reads[static_cast<std::size_t>(read)]);
    } else if (writer.node == nullptr) {
      stored_ = true;  // a tensor of a type that no layer has
    } else if (writer.node->bodies.empty()) {
      trace_reads(level, *writer.node);
    } else {
      trace_bodies(level, *writer.node, static_cast<std::size_t>(writer.result));
    }
  }

  void trace_reads(const Level& level, const Node& node) {
    constexpr std::array by_first = {"Expand", "Tile",   "Reshape", "Unsqueeze", "Squeeze",
                                     "Slice",  "Gather", "Split",   "Cast"};  // the other reads are sizes or places
    if (node.op == "Shape" || node.op == "Size") return;
    stored_ = stored_ || node.reads.empty();  // random numbers
    for (const int read : node.reads) {
      push(level, read);
      if (std::ranges::find(by_first, node.op) != by_first.end()) return;
    }
  }

  /// What bodies return, and for the state of a loop also its value before the loop.
  void trace_bodies(const Level& level, const Node& node, std::size_t result) {
    const std::size_t first = node.op == "Loop" ? 1 : 0;  // the body returns its condition before the states
    for (const Network& body : node.bodies) {
      bodies_.push_back({body, &node, &level});
      push(bodies_.back(), body.outputs[first + result]);
    }
    const network::Attribute* const states = node.find("states");
    if (states == nullptr || result >= static_cast<std::size_t>(states->integers[0])) return;
    push(level, node.reads[2 * first + result]);
  }

  std::string source_;
  std::map<const Network*, std::vector<Writer>> writers_;
  std::vector<Place> left_;
  std::deque<Level> bodies_;  ///< Where the places that are left lie.
  Index traces_ = 0, steps_ = 0;
  bool stored_ = false, given_ = false;
};

class LayerReader {
 public:
  LayerReader(const LayerNames& names, const std::string& source) : names_(names), source_(source), origins_(source) {}

  void read(const Level& level) {
    for (const Node& node : level.network.nodes) {
      if (node.op == "Recurrent") layers_.push_back(layer(level, node));
      for (const Network& body : node.bodies) read({body, &node, &level});
    }
  }
  std::vector<OnnxLayer> take() { return std::move(layers_); }

 private:
  OnnxLayer layer(const Level& level, const Node& node) {
    const std::string title = fmt::format("{}: {}", source_, names_.title(node.name));
    refuse_stored(level, node, title);
    OnnxLayer layer{.name = node.name, .cell = node.find("cell")->text, .weights = {}};
    const std::string& direction = node.find("direction")->text;
    constexpr std::pair<network::RecurrentRead, const char*> reads[] = {{network::kRecurrentWeightIh, "weight_ih"},
                                                                        {network::kRecurrentWeightHh, "weight_hh"},
                                                                        {network::kRecurrentBiasIh, "bias_ih"},
                                                                        {network::kRecurrentBiasHh, "bias_hh"}};
    for (const auto& [read, name] : reads) {
      const int value = node.reads[static_cast<std::size_t>(read)];
      if (value < 0) continue;
      const int number = level.network.values[static_cast<std::size_t>(value)].constant;
      if (number < 0) {
        fail(ErrorCode::unsupported, "{}: its {} is computed and not stored, or of a type that no layer has", title,
             name);
      }
      const network::Constant& all = level.network.constants[static_cast<std::size_t>(number)];
      if (!network::is_real(all.type)) fail(ErrorCode::bad_input, "{}: its {} is not of floats", title, name);
      const std::size_t directions = direction == "bidirectional" ? 2 : 1, bytes = all.bytes.size() / directions;
      const bool is_bias = read == network::kRecurrentBiasIh || read == network::kRecurrentBiasHh;
      if (all.shape.size() != (is_bias ? 2 : 3) || all.shape[0] != static_cast<Index>(directions)) {
        fail(ErrorCode::bad_input, "{}: its {} has the shape [{}], expected {} axes, the first of {}", title, name,
             fmt::join(all.shape, ", "), is_bias ? 2 : 3, directions);
      }
      for (std::size_t i = 0; i < directions; ++i) {
        const bool reverse = direction == "reverse" || i == 1;
        layer.weights.push_back({fmt::format("{}_l0{}", name, reverse ? "_reverse" : ""),
                                 std::string(network::short_name_of(all.type)),
                                 {all.shape.begin() + 1, all.shape.end()},
                                 all.bytes.subspan(i * bytes, bytes),
                                 all.owner});
      }
    }
    return layer;
  }

  /// Weights have no state and no lengths. Those given to the model are the caller's.
  void refuse_stored(const Level& level, const Node& node, const std::string& title) {
    const bool two = node.writes.size() == 3;
    const std::size_t lengths = network::kRecurrentFirstState + (two ? 2 : 1);
    const char* const names[] = {"initial_h", two ? "initial_c" : "sequence_lens", "sequence_lens"};
    for (std::size_t i = network::kRecurrentFirstState; i < node.reads.size() && i <= lengths; ++i) {
      const char* const name = names[i - network::kRecurrentFirstState];
      if (!origins_.is_stored(level, node.reads[i])) continue;
      if (i == lengths) {
        fail(ErrorCode::unsupported,
             "{} has sequence_lens that the file holds: make it an input of the graph, and give forward the lengths",
             title);
      }
      fail(
          ErrorCode::unsupported,
          "{} starts from {}, which the file holds, and weights here have no state: make it an input of the graph, and "
          "pass it to forward",
          title, name);
    }
  }

  const LayerNames& names_;
  std::string source_;
  Origins origins_;
  std::vector<OnnxLayer> layers_;
};

}  // namespace

LayerNames::LayerNames(const ModelMessage& model, std::optional<std::string> only) : only_(std::move(only)) {
  count_names(model.graph.nodes, counts_);
  for (const FunctionMessage& function : model.functions) count_names(function.nodes, counts_);
}

LayerNames::Use LayerNames::take(const NodeMessage& node, std::string& name) {
  const bool own = node.domain.empty();
  others_.insert(std::string(node.op));
  const bool is_foreign =
      !own && std::ranges::any_of(kLayers, [&](std::string_view each) { return node.op.ends_with(each); });
  const bool has_bodies = own && (node.op == "If" || node.op == "Loop" || node.op == "Scan");
  if (has_bodies) return Use::needed;
  if (foreign_.empty() && (is_foreign || has_layers(node))) {
    foreign_ = is_foreign
                   ? fmt::format("{} is of {}, expected RNN, GRU or LSTM of ONNX itself", title_of(node),
                                 in_quotes(node.domain))
                   : fmt::format("{} has a graph with layers, expected them in If, Loop or Scan", title_of(node));
  }
  if (!own || !is_layer(node)) {
    const bool has_graphs = std::ranges::any_of(node.attributes, [](const auto& each) { return !each.graphs.empty(); });
    return own && !has_graphs ? Use::optional : Use::kept;
  }
  const auto output = std::ranges::find_if(node.outputs, [](std::string_view each) { return !each.empty(); });
  const std::string start(!node.name.empty() && counts_[node.name] == 1 ? node.name
                          : output == node.outputs.end()                ? std::string_view()
                                                                        : *output);
  for (name = start; operators_.contains(name);) name = fmt::format("{}#{}", start, ++copies_[start] + 1);
  operators_[name] = node.op;
  names_.push_back(name);
  return !only_ || name == *only_ ? Use::needed : Use::kept;
}

namespace {

/// Some names of a file, as a list for a message.
std::string first_of(const auto& names) {
  constexpr std::size_t most = 5;
  std::vector<std::string> some;
  for (const std::string& name : names) {
    if (some.size() < most) some.push_back(shown(name));
  }
  return fmt::format("{}{}", fmt::join(some, ", "), names.size() > most ? ", ..." : "");
}

}  // namespace

void LayerNames::check(const std::string& source) const {
  if (!only_ && !foreign_.empty()) {
    fail(ErrorCode::unsupported, "{}: {}; name one of the other layers to read it alone", source, foreign_);
  }
  if (names_.empty()) {
    fail(ErrorCode::bad_input, "{}: there is no RNN, GRU or LSTM in it; its operators are {}", source,
         others_.empty() ? "none" : first_of(others_));
  }
  if (only_ && !operators_.contains(*only_)) {
    fail(ErrorCode::bad_input, "{}: there is no layer {}, but {}", source, in_quotes(*only_), first_of(names_));
  }
}

std::string LayerNames::title(const std::string& name) const {
  return fmt::format("{} {}", operators_.at(name), in_quotes(name));
}

std::vector<OnnxLayer> read_layers(std::string_view content, Source source, const std::optional<std::string>& name) {
  const ModelMessage model = decode_model(content, source.name);
  LayerNames names(model, name);
  BuiltNetwork built = build_network(model, source, {}, &names);
  names.check(source.name);
  require_ok(fold_all(built.network, "Recurrent"), source.name + ": ");
  LayerReader reader(names, source.name);
  reader.read({built.network});
  std::vector<OnnxLayer> layers = reader.take();
  if (layers.empty()) fail(ErrorCode::bad_input, "{}: its layers are in branches that are never taken", source.name);
  return layers;
}

}  // namespace penstock::io::onnx
