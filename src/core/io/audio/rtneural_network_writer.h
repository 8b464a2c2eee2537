#pragma once

#include <string>

#include "network/network.h"

namespace penstock::io::audio {

/// Returns a network of lstm, gru, dense layers and activations, one after the other, as JSON of RTNeural. `source`
/// begins messages. Throws Error(unsupported), with the node and the reason, for other networks.
std::string write_rtneural(const network::Network& network, const std::string& source);

}  // namespace penstock::io::audio
