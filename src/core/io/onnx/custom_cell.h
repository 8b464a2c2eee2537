#pragma once

#include <functional>
#include <vector>

#include "custom/expression_graph.h"
#include "io/onnx/symbol.h"

namespace penstock::io {

/// Writes what the roots of a graph need as nodes of ONNX. `leaf` returns the symbol of a leaf; it is never asked for
/// constants. `mean` writes a mean over the units of each head. Returns the roots, which may be constants.
std::vector<Symbol> write_expressions(const custom::ExpressionGraph& graph, const std::vector<custom::NodeId>& roots,
                                      const std::function<Symbol(custom::Operation, int)>& leaf,
                                      const std::function<Symbol(const Symbol&)>& mean = {});

}  // namespace penstock::io
