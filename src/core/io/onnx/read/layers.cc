// The recurrent layers of an ONNX file as weights: the file becomes a network, and folding computes what it stores.

#include <algorithm>
#include <array>
#include <set>
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

/// How many recurrent nodes have each name, those of bodies and functions included.
void count_names(const std::vector<NodeMessage>& nodes, std::map<std::string_view, int>& counts) {
  for (const NodeMessage& node : nodes) {
    if (std::ranges::find(kLayers, node.op) != std::end(kLayers)) ++counts[node.name];
    for (const AttributeMessage& attribute : node.attributes) {
      for (const GraphMessage& body : attribute.graphs) count_names(body.nodes, counts);
    }
  }
}

/// A network and the node of which it is a body.
struct Level {
  const Network& network;
  const Node* node = nullptr;
  const Level* outer = nullptr;
};

/// Where a value comes from, but for shapes: from inputs of the model, or from constants other than zero.
class Origin {
 public:
  Origin(const Level& level, int value) { trace(level, value, 0); }

  bool is_stored() const { return stored_ && !given_; }

 private:
  static constexpr int kDeepest = 10'000;  // nodes in a row; a stack has room for more

  void trace(const Level& level, int value, int depth) {
    const Network& network = level.network;
    if (value < 0 || given_ || !seen_.emplace(&network, value).second) return;
    if (const int constant = network.values[static_cast<std::size_t>(value)].constant; constant >= 0) {
      stored_ = stored_ || !is_zero(network.constants[static_cast<std::size_t>(constant)]);
      return;
    }
    const auto writes = [&](const Node& node) { return std::ranges::find(node.writes, value) != node.writes.end(); };
    const auto node = std::ranges::find_if(network.nodes, writes);
    const auto input = std::ranges::find(network.inputs, value);
    if (input != network.inputs.end() && level.outer != nullptr) {
      const auto place = static_cast<std::size_t>(input - network.inputs.begin()) + (level.node->op == "If" ? 1 : 0);
      trace(*level.outer, level.node->reads[place], depth + 1);
    } else if (node == network.nodes.end() || depth > kDeepest) {
      given_ = true;
    } else if (node->bodies.empty()) {
      trace_reads(level, *node, depth);
    } else {
      const auto result = static_cast<std::size_t>(std::ranges::find(node->writes, value) - node->writes.begin());
      trace_bodies(level, *node, result, depth);
    }
  }

  void trace_reads(const Level& level, const Node& node, int depth) {
    constexpr std::array by_first = {"Expand", "Tile",   "Reshape", "Unsqueeze", "Squeeze",
                                     "Slice",  "Gather", "Split",   "Cast"};  // the other reads are sizes or places
    if (node.op == "Shape" || node.op == "Size") return;
    stored_ = stored_ || node.reads.empty();  // random numbers
    for (const int read : node.reads) {
      trace(level, read, depth + 1);
      if (std::ranges::find(by_first, node.op) != by_first.end()) return;
    }
  }

  /// What bodies return, and for the state of a loop also its value before the loop.
  void trace_bodies(const Level& level, const Node& node, std::size_t result, int depth) {
    const std::size_t first = node.op == "Loop" ? 1 : 0;  // the body returns its condition before the states
    for (const Network& body : node.bodies) trace({body, &node, &level}, body.outputs[first + result], depth + 1);
    const network::Attribute* const states = node.find("states");
    if (states == nullptr || result >= static_cast<std::size_t>(states->integers[0])) return;
    trace(level, node.reads[2 * first + result], depth + 1);
  }

  std::set<std::pair<const Network*, int>> seen_;
  bool stored_ = false, given_ = false;
};

class LayerReader {
 public:
  LayerReader(const LayerNames& names, std::string source) : names_(names), source_(std::move(source)) {}

  void read(const Level& level) {
    for (const Node& node : level.network.nodes) {
      if (node.op == "Recurrent") layers_.push_back(layer(level, node));
      for (const Network& body : node.bodies) read({body, &node, &level});
    }
  }
  std::vector<OnnxLayer> take() { return std::move(layers_); }

 private:
  OnnxLayer layer(const Level& level, const Node& node) const {
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
        fail(ErrorCode::unsupported, "{}: its {} is computed and not stored in the file", title, name);
      }
      const network::Constant& all = level.network.constants[static_cast<std::size_t>(number)];
      if (!network::is_real(all.type)) fail(ErrorCode::bad_input, "{}: its {} is not of floats", title, name);
      const std::size_t directions = direction == "bidirectional" ? 2 : 1, bytes = all.bytes.size() / directions;
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
  static void refuse_stored(const Level& level, const Node& node, const std::string& title) {
    const bool two = node.writes.size() == 3;
    const std::size_t lengths = network::kRecurrentFirstState + (two ? 2 : 1);
    const char* const names[] = {"initial_h", two ? "initial_c" : "sequence_lens", "sequence_lens"};
    for (std::size_t i = network::kRecurrentFirstState; i < node.reads.size() && i <= lengths; ++i) {
      const char* const name = names[i - network::kRecurrentFirstState];
      if (!Origin(level, node.reads[i]).is_stored()) continue;
      if (i == lengths) {
        fail(ErrorCode::unsupported,
             "{} has sequence_lens that the file holds: make it an input of the graph, and pass lengths= to forward",
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
  std::vector<OnnxLayer> layers_;
};

}  // namespace

LayerNames::LayerNames(const ModelMessage& model, std::optional<std::string> only) : only_(std::move(only)) {
  count_names(model.graph.nodes, counts_);
  for (const FunctionMessage& function : model.functions) count_names(function.nodes, counts_);
}

bool LayerNames::take(const NodeMessage& node, std::string& name) {
  const bool own = node.domain.empty();
  others_.insert(std::string(node.op));
  const bool is_layer = std::ranges::any_of(
      kLayers, [&](std::string_view each) { return own ? node.op == each : node.op.ends_with(each); });
  if (!own && is_layer && foreign_.empty()) {
    foreign_ = fmt::format("{} {} is of {}", shown(node.op), in_quotes(node.name), in_quotes(node.domain));
  }
  if (!own || !is_layer) return own;
  const auto output = std::ranges::find_if(node.outputs, [](std::string_view each) { return !each.empty(); });
  const std::string start(!node.name.empty() && counts_[node.name] == 1 ? node.name
                          : output == node.outputs.end()                ? std::string_view()
                                                                        : *output);
  name = start;
  for (int number = 2; operators_.contains(name); ++number) name = fmt::format("{}#{}", start, number);
  operators_[name] = node.op;
  names_.push_back(name);
  return !only_ || name == *only_;
}

void LayerNames::check(const std::string& source) const {
  if (!only_ && !foreign_.empty()) {
    fail(ErrorCode::unsupported,
         "{}: {}, expected RNN, GRU or LSTM of ONNX itself; prefix= reads one of the other layers", source, foreign_);
  }
  if (names_.empty()) {
    std::vector<std::string> kinds(others_.begin(), others_.end());
    if (kinds.size() > 5) kinds.resize(5);
    fail(ErrorCode::bad_input, "{}: there is no RNN, GRU or LSTM in it; its operators are {}", source,
         kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, ", ")));
  }
  if (only_ && !operators_.contains(*only_)) {
    fail(ErrorCode::bad_input, "{}: there is no layer {}, but {}", source, in_quotes(*only_), fmt::join(names_, ", "));
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
  require_ok(simplify(built.network), source.name + ": ");
  LayerReader reader(names, source.name);
  reader.read({built.network});
  std::vector<OnnxLayer> layers = reader.take();
  if (layers.empty()) fail(ErrorCode::bad_input, "{}: no output depends on its recurrent layers", source.name);
  return layers;
}

}  // namespace penstock::io::onnx
