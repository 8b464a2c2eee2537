#include "network/network.h"

#include <algorithm>

#include "network/tensor.h"

namespace penstock::network {

const Attribute* Node::find(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

Index count_parameters(const Network& network) {
  Index count = 0;
  for (const Constant& constant : network.constants) count += elements(constant.shape);
  for (const Node& node : network.nodes) {
    for (const Network& body : node.bodies) count += count_parameters(body);
  }
  return count;
}

bool is_state(const Network& network, int State::*end, std::size_t position) {
  return std::ranges::any_of(network.states,
                             [&](const State& each) { return static_cast<std::size_t>(each.*end) == position; });
}

}  // namespace penstock::network
