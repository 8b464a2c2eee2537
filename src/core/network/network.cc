#include "network/network.h"

#include <algorithm>

namespace penstock::network {

const Attribute* Node::find(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

}  // namespace penstock::network
