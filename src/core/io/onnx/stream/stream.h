#pragma once

#include <string>

#include "network/network.h"

namespace penstock::io::onnx {

/// Makes a network of whole sequences one that takes them in chunks of any length: convolutions keep the frames before
/// a chunk, recurrences their states. Inputs and outputs stay as they are; an output of a node Identity with the
/// attribute "delay" has so many frames more, in front of the first.
///
/// `time` is the name of the extent that is time, or "axis 1"; empty: the one along which frames depend on each other.
/// Throws Error: unsupported, with node, operator and reason, if a frame depends on later ones or on the whole
/// sequence; invalid_argument if there is no such extent.
void make_stream(network::Network& network, const std::string& time, const std::string& source);

}  // namespace penstock::io::onnx
