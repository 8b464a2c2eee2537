#include "io/onnx/read/simplify.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "network/fold.h"

namespace penstock::io::onnx {
namespace {

using network::Network;
using network::Node;
using network::Value;

Value& value_at(Network& network, int value) { return network.values[static_cast<std::size_t>(value)]; }
const Value& value_at(const Network& network, int value) { return network.values[static_cast<std::size_t>(value)]; }

bool is_known(const Network& network, int value) { return value < 0 || value_at(network, value).constant >= 0; }

/// How many of a node's reads are its operator's own, in front of the captured ones.
std::size_t own_reads(const Node& node) {
  const auto number = [&](const char* name) {
    const network::Attribute* const found = node.find(name);
    return found == nullptr || found->integers.empty() ? std::size_t{0} : static_cast<std::size_t>(found->integers[0]);
  };
  if (node.op == "If") return 1;
  return number("states") + (node.op == "Loop" ? 2 : number("num_scan_inputs"));
}

/// Inputs of a body that its operator gives it, in front of the captured ones.
std::size_t own_inputs(const Node& node) { return node.op == "If" ? 0 : own_reads(node); }

/// Replaces captured values that are constants by constants of the bodies.
void sink_constants(const Network& network, Node& node) {
  const std::size_t own = own_reads(node), inputs = own_inputs(node);
  for (std::size_t read = node.reads.size(); read-- > own;) {
    const Value& value = value_at(network, node.reads[read]);
    if (value.constant < 0) continue;
    for (Network& body : node.bodies) {
      const auto at = body.inputs.begin() + static_cast<std::ptrdiff_t>(inputs + read - own);
      Value& inner = value_at(body, *at);
      inner.type = value.type;
      inner.shape = value.shape;
      inner.constant = static_cast<int>(body.constants.size());
      body.constants.push_back(network.constants[static_cast<std::size_t>(value.constant)]);
      body.inputs.erase(at);
    }
    node.reads.erase(node.reads.begin() + static_cast<std::ptrdiff_t>(read));
  }
}

/// Lets readers of an Identity read what it reads.
void skip_identities(Network& network) {
  std::unordered_map<int, int> same;
  const auto renumber = [&](int& value) {
    const auto found = same.find(value);
    if (found != same.end()) value = found->second;
  };
  for (Node& node : network.nodes) {
    std::ranges::for_each(node.reads, renumber);
    if (node.op == "Identity" && node.reads.size() == 1) same[node.writes[0]] = node.reads[0];
  }
  // An output keeps its Identity where it is an input or another output.
  std::unordered_set<int> taken(network.inputs.begin(), network.inputs.end());
  for (int& output : network.outputs) {
    int source = output;
    renumber(source);
    if (!taken.contains(source) && !is_known(network, source)) output = source;
    taken.insert(output);
  }
}

void skip_all_identities(Network& network) {
  for (Node& node : network.nodes) std::ranges::for_each(node.bodies, skip_all_identities);
  skip_identities(network);
}

/// Marks what outputs need. Returns for each value whether it is needed.
std::vector<bool> needed_values(Network& network) {
  std::vector<bool> needed(network.values.size(), false);
  for (const int output : network.outputs) needed[static_cast<std::size_t>(output)] = true;
  for (std::size_t i = network.nodes.size(); i-- > 0;) {
    Node& node = network.nodes[i];
    const auto is_needed = [&](int value) { return value >= 0 && needed[static_cast<std::size_t>(value)]; };
    if (std::ranges::none_of(node.writes, is_needed)) {
      node.writes.clear();  // to be removed
      continue;
    }
    for (const int read : node.reads) {
      if (read >= 0) needed[static_cast<std::size_t>(read)] = true;
    }
  }
  return needed;
}

/// Removes captured values that no body of a node reads.
void drop_captures(Node& node) {
  const std::size_t own = own_reads(node), inputs = own_inputs(node);
  std::vector<std::vector<bool>> read;
  for (Network& body : node.bodies) {
    drop_unused(body);
    auto& used = read.emplace_back(body.values.size(), false);
    const auto mark = [&](int value) {
      if (value >= 0) used[static_cast<std::size_t>(value)] = true;
    };
    for (const Node& inner : body.nodes) std::ranges::for_each(inner.reads, mark);
    std::ranges::for_each(body.outputs, mark);
  }
  for (std::size_t i = node.reads.size(); i-- > own;) {
    const std::size_t input = inputs + i - own;
    const auto reads_it = [&](std::size_t body) {
      return read[body][static_cast<std::size_t>(node.bodies[body].inputs[input])];
    };
    bool used = false;
    for (std::size_t body = 0; body < node.bodies.size(); ++body) used = used || reads_it(body);
    if (used) continue;
    for (Network& body : node.bodies) body.inputs.erase(body.inputs.begin() + static_cast<std::ptrdiff_t>(input));
    node.reads.erase(node.reads.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

void drop_unused(Network& network) {
  for (Node& node : network.nodes) {
    if (!node.bodies.empty()) drop_captures(node);
  }
  std::vector<bool> needed = needed_values(network);
  std::erase_if(network.nodes, [](const Node& node) { return node.writes.empty(); });
  for (const int input : network.inputs) needed[static_cast<std::size_t>(input)] = true;
  std::vector<int> numbers(network.values.size(), -1);
  std::vector<Value> values;
  std::vector<network::Constant> constants;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!needed[i]) continue;
    numbers[i] = static_cast<int>(values.size());
    values.push_back(std::move(network.values[i]));
    if (values.back().constant < 0) continue;
    constants.push_back(std::move(network.constants[static_cast<std::size_t>(values.back().constant)]));
    values.back().constant = static_cast<int>(constants.size()) - 1;
  }
  const auto renumber = [&](std::vector<int>& all) {
    for (int& value : all) value = value < 0 ? value : numbers[static_cast<std::size_t>(value)];
  };
  for (Node& node : network.nodes) {
    renumber(node.reads);
    renumber(node.writes);
  }
  renumber(network.inputs);
  renumber(network.outputs);
  network.values = std::move(values);
  network.constants = std::move(constants);
}

network::Status fold_all(Network& network, std::string_view keep) {
  if (network::Status status = network::fold(network, keep); !status.ok()) return status;
  for (Node& node : network.nodes) {
    if (!node.bodies.empty()) sink_constants(network, node);
    for (Network& body : node.bodies) {
      if (network::Status status = fold_all(body, keep); !status.ok()) return status;
    }
  }
  return {};
}

network::Status simplify(Network& network) {
  network::Status status = fold_all(network);
  if (status.ok()) skip_all_identities(network);
  if (status.ok()) drop_unused(network);
  return status;
}

}  // namespace penstock::io::onnx
