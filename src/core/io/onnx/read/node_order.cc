#include "io/onnx/read/node_order.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"

namespace penstock::io::onnx {
namespace {

using Names = std::vector<std::string_view>;

/// Appends the names that a graph reads and does not define.
void free_names(const GraphMessage& graph, Names& names) {
  std::unordered_set<std::string_view> own;
  for (const ValueMessage& input : graph.inputs) own.insert(input.name);
  for (const TensorMessage& tensor : graph.tensors) own.insert(tensor.name);
  Names used;
  for (const NodeMessage& node : graph.nodes) {
    own.insert(node.outputs.begin(), node.outputs.end());
    used.insert(used.end(), node.inputs.begin(), node.inputs.end());
    for (const AttributeMessage& attribute : node.attributes) {
      for (const GraphMessage& body : attribute.graphs) free_names(body, used);
    }
  }
  for (const ValueMessage& output : graph.outputs) used.push_back(output.name);
  std::ranges::copy_if(used, std::back_inserter(names), [&](std::string_view each) { return !own.contains(each); });
}

}  // namespace

std::vector<const NodeMessage*> in_order(const std::vector<NodeMessage>& nodes, const std::string& source) {
  std::unordered_map<std::string_view, std::size_t> writers;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string_view name : nodes[i].outputs) writers.emplace(name, i);
  }
  std::vector<std::vector<std::size_t>> readers(nodes.size());
  std::vector<std::size_t> missing(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Names reads = nodes[i].inputs;
    for (const AttributeMessage& attribute : nodes[i].attributes) {
      for (const GraphMessage& graph : attribute.graphs) free_names(graph, reads);
    }
    for (const std::string_view name : reads) {
      const auto writer = writers.find(name);
      if (name.empty() || writer == writers.end()) continue;
      readers[writer->second].push_back(i);
      ++missing[i];
    }
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<const NodeMessage*> order;
  for (; !ready.empty();) {
    const std::size_t node = ready.top();
    ready.pop();
    order.push_back(&nodes[node]);
    for (const std::size_t reader : readers[node]) {
      if (--missing[reader] == 0) ready.push(reader);
    }
  }
  if (order.size() < nodes.size()) {
    const auto stuck = std::ranges::find_if(missing, [](std::size_t each) { return each > 0; }) - missing.begin();
    fail(ErrorCode::bad_input, "{}: {} depends on its own result", source,
         title_of(nodes[static_cast<std::size_t>(stuck)]));
  }
  return order;
}

}  // namespace penstock::io::onnx
