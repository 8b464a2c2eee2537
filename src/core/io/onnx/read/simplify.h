#pragma once

#include <string_view>

#include "network/network.h"
#include "network/status.h"

namespace penstock::io::onnx {

/// network::fold(), in bodies too.
network::Status fold_all(network::Network& network, std::string_view keep = {});

/// Computes what depends on constants alone, replaces each If whose condition is then known by its branch, and drops
/// what no output needs, inputs excepted; in bodies too. Returns a Status that names the node if one cannot be
/// computed.
network::Status simplify(network::Network& network);

/// Removes nodes, values and constants that no output needs, and captured values that no body reads. Inputs stay.
void drop_unused(network::Network& network);

}  // namespace penstock::io::onnx
