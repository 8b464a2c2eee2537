#include "io/onnx/read/graph_to_network.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "io/onnx/read/draft.h"
#include "io/onnx/read/layers.h"
#include "io/onnx/read/node_order.h"

namespace penstock::io::onnx {
namespace {

using network::Attribute;
using network::Constant;
using network::Network;
using network::Value;
using Use = LayerNames::Use;

constexpr Index kOldestOpset = 7, kNewestOpset = 24;
constexpr std::size_t kMostNodes = 1'000'000;  // after inlining functions, which can grow exponentially
constexpr std::size_t kMostPorts = 1024;       // inputs or outputs of a model
constexpr int kMostCalls = 32;                 // of functions in functions

/// The names that a graph or a function can see.
struct Scope {
  Network* network = nullptr;
  Index opset = 0;
  std::unordered_map<std::string_view, int> values = {};
  Scope* outer = nullptr;  ///< Of a body: the graph around it.
  struct Capture {
    int here, outer;
  };
  std::vector<Capture> captured = {};
  /// In the body of a function: its call, because nodes may refer to its attributes.
  const NodeMessage* call = nullptr;
  const FunctionMessage* function = nullptr;
};

class GraphBuilder {
 public:
  GraphBuilder(const ModelMessage& model, Source& source, const FixedInputs& fixed, LayerNames* layers)
      : model_(model), source_(source), fixed_(fixed), layers_(layers) {
    for (const FunctionMessage& each : model.functions) {
      functions_.try_emplace({each.domain == "ai.onnx" ? "" : each.domain, each.name}, &each);
    }
  }

  BuiltNetwork build();

 private:
  template <class... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    fail(code, "{}: {}", source_.name, fmt::format(format, std::forward<Args>(args)...));
  }
  void add_inputs(Scope& scope);
  void define(Scope& scope, std::string_view name, int value);
  int add_value(Scope& scope, std::string_view name) const;
  int add_constant(Scope& scope, std::string_view name, Constant constant) const;
  int find(Scope& scope, std::string_view name, const std::string& reader);
  int find_output(Scope& scope, std::string_view name, const std::string& of);
  int add_tensor(Scope& scope, std::string_view name, const TensorMessage& tensor);
  void add_tensors(Scope& scope, const std::vector<TensorMessage>& tensors);
  void add_nodes(Scope& scope, const std::vector<NodeMessage>& nodes);
  void add_node(Scope& scope, const NodeMessage& message);
  void convert_or_keep(Scope& scope, Draft& draft, Use use);
  bool add_stored(Scope& scope, const NodeMessage& message);
  void inline_function(Scope& scope, const NodeMessage& message, const FunctionMessage& function);
  const FunctionMessage* function_of(const NodeMessage& message) const;
  std::vector<AttributeMessage> attributes_of(const Scope& scope, const NodeMessage& message) const;
  void add_attributes(Scope& scope, Draft& draft);
  void add_bodies(Scope& scope, Draft& draft);
  Network body(Scope& outer, const GraphMessage& graph, const std::string& title,
               std::vector<Scope::Capture>& captured);

  const ModelMessage& model_;
  Source& source_;
  const FixedInputs& fixed_;
  LayerNames* layers_;  ///< Null: the whole network is of interest.
  std::map<std::pair<std::string_view, std::string_view>, const FunctionMessage*> functions_;  // by domain and name
  std::size_t nodes_ = 0;
  int calls_ = 0;
};

void GraphBuilder::define(Scope& scope, std::string_view name, int value) {
  if (!scope.values.emplace(name, value).second) {
    refuse(ErrorCode::bad_input, "the value {} is written twice", in_quotes(name));
  }
}

int GraphBuilder::add_value(Scope& scope, std::string_view name) const {
  scope.network->values.push_back({.name = std::string(name)});
  return static_cast<int>(scope.network->values.size()) - 1;
}

int GraphBuilder::add_constant(Scope& scope, std::string_view name, Constant constant) const {
  scope.network->values.push_back({.name = std::string(name),
                                   .type = constant.type,
                                   .shape = constant.shape,
                                   .constant = static_cast<int>(scope.network->constants.size())});
  scope.network->constants.push_back(std::move(constant));
  return static_cast<int>(scope.network->values.size()) - 1;
}

/// Returns a value by its name; one of the graph around a body becomes an input of the body, or a constant in it.
int GraphBuilder::find(Scope& scope, std::string_view name, const std::string& reader) {
  if (const auto found = scope.values.find(name); found != scope.values.end()) return found->second;
  if (scope.outer == nullptr) {
    refuse(ErrorCode::bad_input, "{} reads {}, which nothing before it writes", reader, in_quotes(name));
  }
  const int outer = find(*scope.outer, name, reader);
  if (outer < 0) return -1;  // an input of a function that its call lacks
  const Value& value = scope.outer->network->values[static_cast<std::size_t>(outer)];
  int here = -1;
  if (value.constant >= 0) {
    here = add_constant(scope, name, scope.outer->network->constants[static_cast<std::size_t>(value.constant)]);
  } else {
    here = add_value(scope, name);
    scope.captured.push_back({here, outer});
  }
  scope.values.emplace(name, here);
  return here;
}

int GraphBuilder::find_output(Scope& scope, std::string_view name, const std::string& of) {
  const int value = find(scope, name, of);
  if (value < 0) refuse(ErrorCode::bad_input, "{} returns {}, which has no value", of, in_quotes(name));
  return value;
}

/// With layers, a tensor of a type that no layer has is a value that nothing writes.
int GraphBuilder::add_tensor(Scope& scope, std::string_view name, const TensorMessage& tensor) {
  if (layers_ != nullptr && !is_known_type(tensor.type)) return add_value(scope, name);
  return add_constant(scope, name, to_constant(tensor, source_));
}

void GraphBuilder::add_tensors(Scope& scope, const std::vector<TensorMessage>& tensors) {
  for (const TensorMessage& tensor : tensors) define(scope, tensor.name, add_tensor(scope, tensor.name, tensor));
}

void GraphBuilder::add_nodes(Scope& scope, const std::vector<NodeMessage>& nodes) {
  for (const NodeMessage* const node : in_order(nodes, source_.name)) {
    if (++nodes_ > kMostNodes) refuse(ErrorCode::bad_input, "more than {} nodes with those of functions", kMostNodes);
    add_node(scope, *node);
  }
}

/// Adds what a Constant node holds. Returns false for other nodes.
bool GraphBuilder::add_stored(Scope& scope, const NodeMessage& message) {
  if (message.op != "Constant" || !message.domain.empty()) return false;
  if (message.attributes.size() != 1 || message.outputs.size() != 1) {
    refuse(ErrorCode::bad_input, "{}: it has {} attributes and {} outputs, expected one of each", title_of(message),
           message.attributes.size(), message.outputs.size());
  }
  const AttributeMessage& held = message.attributes.front();
  const auto define_as = [&](Constant constant) {
    define(scope, message.outputs[0], add_constant(scope, message.outputs[0], std::move(constant)));
  };
  if (!held.tensors.empty()) {
    define(scope, message.outputs[0], add_tensor(scope, message.outputs[0], held.tensors.front()));
  } else if (held.name == "value_float") {
    define_as(make_number(held.f));
  } else if (held.name == "value_int") {
    define_as(make_integers({}, std::span(&held.i, 1)));
  } else if (held.name == "value_floats") {
    const auto count = static_cast<Index>(held.floats.size());
    define_as(make_constant(network::Type::f32, {count}, std::as_bytes(std::span(held.floats))));
  } else if (held.name == "value_ints") {
    define_as(make_integers({static_cast<Index>(held.ints.size())}, held.ints));
  } else if (layers_ != nullptr) {
    define(scope, message.outputs[0], add_value(scope, message.outputs[0]));
  } else {
    refuse(ErrorCode::unsupported, "{}: it holds a {}, expected numbers", title_of(message), in_quotes(held.name));
  }
  return true;
}

const FunctionMessage* GraphBuilder::function_of(const NodeMessage& message) const {
  const auto found = functions_.find({message.domain, message.op});
  return found == functions_.end() ? nullptr : found->second;
}

void GraphBuilder::inline_function(Scope& scope, const NodeMessage& message, const FunctionMessage& function) {
  if (++calls_ > kMostCalls) {
    refuse(ErrorCode::bad_input, "{}: the function calls itself, or calls nest beyond {}", title_of(message),
           kMostCalls);
  }
  Scope inner{.network = scope.network,
              .opset = function.opset == 0 ? scope.opset : function.opset,
              .call = &message,
              .function = &function};
  // The call of a function in a function may refer to attributes of the outer call.
  NodeMessage resolved;
  resolved.attributes = attributes_of(scope, message);
  inner.call = &resolved;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const bool given = i < message.inputs.size() && !message.inputs[i].empty();
    inner.values.emplace(function.inputs[i], given ? find(scope, message.inputs[i], title_of(message)) : -1);
  }
  add_nodes(inner, function.nodes);
  for (std::size_t i = 0; i < std::min(function.outputs.size(), message.outputs.size()); ++i) {
    if (!message.outputs[i].empty()) {
      define(scope, message.outputs[i], find_output(inner, function.outputs[i], title_of(message)));
    }
  }
  --calls_;
}

/// Returns attributes other than graphs, with those of the function's call in place of references.
std::vector<AttributeMessage> GraphBuilder::attributes_of(const Scope& scope, const NodeMessage& message) const {
  std::vector<AttributeMessage> result;
  for (const AttributeMessage& written : message.attributes) {
    if (!written.graphs.empty()) continue;
    const AttributeMessage* given = &written;
    if (!written.reference.empty() && scope.call != nullptr) {
      const auto of = [&](const std::vector<AttributeMessage>& all) {
        const auto found = std::ranges::find(all, written.reference, &AttributeMessage::name);
        return found == all.end() ? nullptr : &*found;
      };
      given = of(scope.call->attributes);
      if (given == nullptr) given = of(scope.function->defaults);
      if (given == nullptr) continue;  // absent in the call, so absent here
    }
    result.push_back(*given);
    result.back().name = written.name;
  }
  return result;
}

void GraphBuilder::add_attributes(Scope& scope, Draft& draft) {
  for (const AttributeMessage& given : attributes_of(scope, draft.message())) {
    const AttributeMessage* const message = &given;
    Attribute attribute{.name = std::string(given.name)};
    using Kind = AttributeMessage::Kind;
    switch (message->type) {
      case Kind::kFloat:
        attribute.numbers = {message->f};
        break;
      case Kind::kInt:
        attribute.integers = {message->i};
        break;
      case Kind::kString:
        attribute.text = std::string(message->s);
        break;
      case Kind::kFloats:
        attribute.numbers = message->floats;
        break;
      case Kind::kInts:
        attribute.integers = message->ints;
        break;
      case Kind::kStrings:
        if (message->name != "activations") {
          draft.refuse(ErrorCode::unsupported, "its attribute {} is a list of texts", in_quotes(message->name));
        }
        break;
      case Kind::kTensor:
        if (draft.node.op == "ConstantOfShape") continue;
        [[fallthrough]];
      default:
        draft.refuse(ErrorCode::unsupported, "its attribute {} is of kind {}, expected numbers or a text",
                     in_quotes(message->name), message->type);
    }
    if (attribute.name == "to" || attribute.name == "dtype") {
      if (attribute.integers.size() != 1)
        draft.refuse(ErrorCode::bad_input, "its attribute {} is no type", attribute.name);
      type_of(attribute.integers[0], draft.source());
      const bool half = attribute.integers[0] == kFloat16 || attribute.integers[0] == kBfloat16;
      if (half) attribute.integers[0] = kFloat;
    }
    draft.node.attributes.push_back(std::move(attribute));
  }
}

/// Adds a node that is no layer. If it cannot be converted, what it computes remains unknown.
void GraphBuilder::convert_or_keep(Scope& scope, Draft& draft, Use use) {
  const network::Node node = draft.node;
  try {
    if (use == Use::optional) {
      add_attributes(scope, draft);
      convert(draft);
      return;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
  }
  draft.node = node;
  draft.node.op = fmt::format("{}.{}", draft.message().domain, node.op);  // no operator of networks, whatever its name
  draft.finish();
}

void GraphBuilder::add_node(Scope& scope, const NodeMessage& message) {
  if (add_stored(scope, message)) return;
  if (const FunctionMessage* const function = function_of(message); function != nullptr) {
    inline_function(scope, message, *function);
    return;
  }
  const std::string title = title_of(message);
  Draft draft(*scope.network, message, scope.opset, fmt::format("{}: {}", source_.name, title));
  draft.node.op = std::string(message.op);
  draft.node.name = std::string(message.name);
  for (const std::string_view name : message.inputs) {
    draft.node.reads.push_back(name.empty() ? -1 : find(scope, name, title));
  }
  const Use use = layers_ == nullptr ? Use::needed : layers_->take(message, draft.node.name);
  if (use == Use::needed) {
    add_attributes(scope, draft);
    add_bodies(scope, draft);
  }
  for (const std::string_view name : message.outputs) {
    draft.node.writes.push_back(name.empty() ? -1 : add_value(scope, name));
    if (!name.empty()) define(scope, name, draft.node.writes.back());
    if (draft.node.name.empty()) draft.node.name = std::string(name);
  }
  if (draft.node.writes.empty() || std::ranges::all_of(draft.node.writes, [](int each) { return each < 0; })) {
    draft.refuse(ErrorCode::bad_input, "it writes nothing");
  }
  use == Use::needed ? convert(draft) : convert_or_keep(scope, draft, use);
}

/// Makes the network of a body. What it captures is listed in `captured`; its inputs do not have it yet.
Network GraphBuilder::body(Scope& outer, const GraphMessage& graph, const std::string& title,
                           std::vector<Scope::Capture>& captured) {
  Network network;
  Scope scope{
      .network = &network, .opset = outer.opset, .outer = &outer, .call = outer.call, .function = outer.function};
  add_tensors(scope, graph.tensors);
  for (const ValueMessage& input : graph.inputs) {
    const int value = add_value(scope, input.name);
    define(scope, input.name, value);
    network.inputs.push_back(value);
  }
  add_nodes(scope, graph.nodes);
  for (const ValueMessage& output : graph.outputs) network.outputs.push_back(find_output(scope, output.name, title));
  captured = std::move(scope.captured);
  return network;
}

void GraphBuilder::add_bodies(Scope& scope, Draft& draft) {
  std::vector<const AttributeMessage*> graphs;
  for (const AttributeMessage& attribute : draft.message().attributes) {
    if (!attribute.graphs.empty()) graphs.push_back(&attribute);
  }
  const std::string& op = draft.node.op;
  const bool own = draft.message().domain.empty();
  const bool branches = op == "If" && own, loops = (op == "Loop" || op == "Scan") && own;
  if (graphs.empty() && !branches && !loops) return;
  // The branch for true comes first, whatever the order in the file.
  std::ranges::sort(graphs, std::ranges::greater(), &AttributeMessage::name);
  const bool expected = branches
                            ? graphs.size() == 2 && graphs[0]->name == "then_branch" && graphs[1]->name == "else_branch"
                            : loops && graphs.size() == 1 && graphs[0]->name == "body";
  if (!branches && !loops) draft.refuse(ErrorCode::unsupported, "it has graphs, expected them in If, Loop and Scan");
  if (!expected) draft.refuse(ErrorCode::bad_input, "it has graphs that its operator does not have, or lacks them");
  std::vector<int> all;  // captured values of this graph, in the order of the bodies' further inputs
  std::vector<std::unordered_map<int, int>> captured(graphs.size());  // {value of this graph: value of the body}
  std::unordered_set<int> seen;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    std::vector<Scope::Capture> found;
    draft.node.bodies.push_back(body(scope, graphs[i]->graphs.front(), draft.source(), found));
    for (const Scope::Capture& each : found) {
      captured[i].emplace(each.outer, each.here);
      if (seen.insert(each.outer).second) all.push_back(each.outer);
    }
  }
  const std::size_t reads = draft.node.reads.size(), writes = draft.message().outputs.size();
  if (branches ? reads != 1 || !draft.has(0) : op == "Loop" && reads < 2) {
    draft.refuse(ErrorCode::bad_input, "it has {} inputs, expected {}", reads, branches ? "one" : "two or more");
  }
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    Network& network = draft.node.bodies[i];
    const std::size_t formal = network.inputs.size(), results = network.outputs.size();
    const bool fits = branches       ? formal == 0 && results == writes
                      : op == "Loop" ? formal == reads && results == writes + 1
                                     : formal == reads && results == writes;
    if (!fits) {
      draft.refuse(ErrorCode::bad_input, "its body has {} inputs and {} outputs, and the node {} and {}", formal,
                   results, reads, writes);
    }
    for (const int outer : all) {
      if (const auto found = captured[i].find(outer); found != captured[i].end()) {
        network.inputs.push_back(found->second);
      } else {
        network.inputs.push_back(static_cast<int>(network.values.size()));
        network.values.push_back({.name = scope.network->values[static_cast<std::size_t>(outer)].name});
      }
    }
  }
  draft.node.reads.insert(draft.node.reads.end(), all.begin(), all.end());
  if (op == "Loop") draft.set("states", {static_cast<Index>(reads) - 2});
  if (op == "Scan") {
    const network::Attribute* const scanned = draft.node.find("num_scan_inputs");
    const Index inputs = scanned == nullptr || scanned->integers.size() != 1 ? -1 : scanned->integers[0];
    if (inputs < 0 || inputs > static_cast<Index>(reads)) {
      draft.refuse(ErrorCode::bad_input, "num_scan_inputs is {}, and it has {} inputs", inputs, reads);
    }
    draft.set("states", {static_cast<Index>(reads) - inputs});
  }
}

void GraphBuilder::add_inputs(Scope& scope) {
  std::vector<std::string> names;
  for (const ValueMessage& message : model_.graph.inputs) {
    if (scope.values.contains(message.name)) continue;  // an initialiser with this name: its default value
    if (layers_ != nullptr) {
      scope.network->inputs.push_back(add_value(scope, message.name));
      define(scope, message.name, scope.network->inputs.back());
      continue;
    }
    Value input = input_of(message, source_);
    names.push_back(shown(input.name));
    if (const auto fixed = fixed_.find(input.name); fixed != fixed_.end()) {
      define(scope, message.name, add_constant(scope, message.name, fixed_value(input, fixed->second)));
      continue;
    }
    const auto value = static_cast<int>(scope.network->values.size());
    scope.network->values.push_back(std::move(input));
    scope.network->inputs.push_back(value);
    define(scope, message.name, value);
  }
  for (const auto& [name, numbers] : fixed_) {
    if (std::ranges::find(names, shown(name)) == names.end()) {
      require_about(false, "fixed", ": {} has no input {}, but {}", source_.name, in_quotes(name),
                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
  }
}

BuiltNetwork GraphBuilder::build() {
  if (!model_.has_graph) refuse(ErrorCode::bad_input, "this is not an ONNX model: it has no graph");
  if (layers_ == nullptr && (model_.opset < kOldestOpset || model_.opset > kNewestOpset)) {
    refuse(ErrorCode::unsupported,
           "its operators are of version {}, expected {} to {}: export it with opset_version={}", model_.opset,
           kOldestOpset, kNewestOpset, 17);
  }
  if (model_.graph.sparse) refuse(ErrorCode::unsupported, "it has sparse tensors: store them dense");
  BuiltNetwork built;
  built.opset = model_.opset;
  Scope scope{.network = &built.network, .opset = model_.opset};
  add_tensors(scope, model_.graph.tensors);
  add_inputs(scope);
  add_nodes(scope, model_.graph.nodes);
  if (model_.graph.outputs.empty()) refuse(ErrorCode::bad_input, "it has no outputs");
  if (std::max(scope.network->inputs.size(), model_.graph.outputs.size()) > kMostPorts) {
    refuse(ErrorCode::unsupported, "it has more than {} inputs or outputs", kMostPorts);
  }
  for (const ValueMessage& output : model_.graph.outputs) {
    built.network.outputs.push_back(find_output(scope, output.name, "the model"));
    Declared declared{std::string(output.name), output.has_shape, {}};
    for (const ValueMessage::Extent& extent : output.shape) declared.shape.push_back(extent.size);
    built.outputs.push_back(std::move(declared));
  }
  return built;
}

}  // namespace

BuiltNetwork build_network(const ModelMessage& model, Source& source, const FixedInputs& fixed, LayerNames* layers) {
  return GraphBuilder(model, source, fixed, layers).build();
}

}  // namespace penstock::io::onnx
