#pragma once

#include <string>

#include "io/onnx/onnx_graph.h"
#include "io/safetensors.h"

/// ONNX files: a graph with metadata, as bytes.
namespace penstock::io {

/// Returns the bytes of a file with a graph. Throws Error(unsupported) for 2 GiB or more, the limit of the format.
std::string onnx_file(const OnnxGraph& graph, const Metadata& metadata);

}  // namespace penstock::io
