#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// The shape that a caller gives an input.
struct InputShape {
  std::string_view input;
  Shape shape;
};

/// Completes the shapes of all inputs of a network. Extents that a caller chooses but did not give follow from inputs
/// with the same names of extents; those of states are 1 otherwise.
Status complete_shapes(const Network& network, std::span<const InputShape> given, std::vector<Shape>& all);

}  // namespace penstock::network
