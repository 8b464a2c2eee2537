#pragma once

#include <span>
#include <string>
#include <vector>

#include "network/network.h"

namespace penstock::io {

/// Returns the names of the nodes whose constant, finite matrices can be int8, in their order: Recurrent, MatMul, Gemm
/// and Conv, also in branches and bodies of loops. A node without a name, or with that of another one, is called by its
/// operator and position.
std::vector<std::string> int8_layers(const network::Network& network);

/// Returns the network with the matrices of these nodes as int8. A DequantizeLinear with one scale for each output
/// reads each of them, so that everything that runs networks runs this one. `round_inputs`: convolutions and products
/// of the sizes that products of bytes are faster for round their inputs, too; the C runtime has no such operators.
network::Network with_int8(network::Network network, std::span<const std::string> layers, bool round_inputs = false);

}  // namespace penstock::io
