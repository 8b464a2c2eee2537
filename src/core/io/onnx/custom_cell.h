#pragma once

#include <functional>
#include <string>
#include <vector>

#include "custom/expression_graph.h"
#include "io/onnx/symbol.h"

namespace penstock::io {

/// Writes what the roots of a graph need as nodes of ONNX in `body`, and returns the names of the roots. `leaf` returns
/// the symbol of a leaf that is not a constant. `mean` writes a mean over the units of each head. A root of the size of
/// constants, learnt vectors and means is repeated to the size of `like`.
std::vector<std::string> write_expressions(OnnxGraph& body, const custom::ExpressionGraph& graph,
                                           const std::vector<custom::NodeId>& roots, const std::string& like,
                                           const std::function<Symbol(custom::Operation, int)>& leaf,
                                           const std::function<Symbol(const Symbol&)>& mean = {});

}  // namespace penstock::io
