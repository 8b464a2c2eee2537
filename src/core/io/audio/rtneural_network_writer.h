#pragma once

#include <string>

#include "network/network.h"

namespace penstock::io::audio {

/// Returns a network of lstm, gru, dense, conv1d, conv2d, prelu and batchnorm layers and activations, one after the
/// other, as JSON of RTNeural. Constants that are added or multiplied become batchnorm. `source` begins messages.
/// Throws Error(unsupported), with the node and the reason, for other networks.
std::string write_rtneural(const network::Network& network, const std::string& source);

}  // namespace penstock::io::audio
