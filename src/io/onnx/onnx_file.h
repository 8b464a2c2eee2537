#pragma once

#include <string>

#include "io/onnx/onnx_graph.h"
#include "io/safetensors.h"

namespace penstock::io {

/// The bytes of a file that holds a graph. Throws Error(unsupported) if they are too many for the format.
std::string onnx_file(const OnnxGraph& graph, const Metadata& metadata);

}  // namespace penstock::io
