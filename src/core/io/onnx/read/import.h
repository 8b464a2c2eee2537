#pragma once

#include "io/onnx/read/tensor.h"
#include "network/network.h"
#include "penstock/network.h"

namespace penstock::io::onnx {

/// Makes a network of the content of an ONNX file. Throws Error as Network::import_onnx() does.
network::Network import_network(std::string_view content, Source source, const NetworkImport& options);

/// Reads the recurrent layers of an ONNX file (penstock/network.h).
std::vector<OnnxLayer> read_layers(std::string_view content, Source source, const std::optional<std::string>& name);

}  // namespace penstock::io::onnx
