#include "network/row_ranges.h"

#include <algorithm>

#include "network/trace.h"

namespace penstock::network {

namespace {

bool finds_range(const Node& node) {
  const Attribute* const quantised = node.find("quantised");
  return node.op == "DynamicQuantizeLinear" || (quantised != nullptr && quantised->integers == std::vector<Index>{1});
}

/// Finds the axis of the rows in the shapes of one row and of two. -1: the shapes are equal.
bool find_axis(const Shape& one, const Shape& two, Index& axis) {
  axis = -1;
  if (one == two) return true;
  const auto differ = std::ranges::mismatch(one, two);
  if (one.size() != two.size() || *differ.in1 != 1 || *differ.in2 != 2) return false;
  axis = differ.in1 - one.begin();
  return std::equal(differ.in1 + 1, one.end(), differ.in2 + 1);
}

Status give_range(Node& node, const Shape& one, const Shape& two) {
  Index axis = -1;
  const bool recurs = node.op == "Recurrent";
  if (!find_axis(one, two, axis) || (recurs && axis >= 0 && axis != 1)) {
    return in_node(
        node, Status::unsupported("its int8 numbers have one range for all rows: the input has shape " + text_of(one) +
                                  " for one row and " + text_of(two) + " for two, which shows no axis of rows"));
  }
  if (axis < 0) return {};
  // Operators of other names: the C runtime, which has one range for a batch, refuses them.
  node.op.insert(0, "Row");
  if (!recurs) node.attributes.push_back({"rows", {axis}});
  return {};
}

}  // namespace

bool has_ranges(const Network& network) {
  return std::ranges::any_of(network.nodes, [](const Node& node) {
    return finds_range(node) || std::ranges::any_of(node.bodies, has_ranges);
  });
}

Status give_row_ranges(Network& network, std::span<const Shape> one, std::span<const Shape> two) {
  Trace alone, both;
  PENSTOCK_TRY(trace(network, one, alone));
  PENSTOCK_TRY(trace(network, two, both));
  for (Node& node : network.nodes) {
    if (std::ranges::any_of(node.bodies, has_ranges)) {
      return in_node(node, Status::unsupported("its body has int8 numbers with one range for all rows"));
    }
    if (!finds_range(node) || node.reads.empty() || node.reads[0] < 0) continue;
    const auto read = static_cast<std::size_t>(node.reads[0]);
    PENSTOCK_TRY(give_range(node, alone.facts[read].shape, both.facts[read].shape));
  }
  return {};
}

}  // namespace penstock::network
