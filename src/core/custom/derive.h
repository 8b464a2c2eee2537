#pragma once

#include <span>
#include <vector>

#include "custom/expression_graph.h"

namespace penstock::custom {

/// Differentiates in reverse mode: adds the nodes of the derivatives of sum_i outputs[i] seeds[i] to the graph.
/// Returns the derivative with respect to each of the first `count` nodes, kNoNode where it is 0 everywhere. In a tie
/// the gradient of min and max goes to the first operand; the slope of relu and abs at 0 is 0.
std::vector<NodeId> gradients(ExpressionGraph& graph, std::span<const NodeId> outputs, std::span<const NodeId> seeds,
                              int count);

/// Differentiates in forward mode: adds the tangents of the outputs, given those of the leaves, to the graph. The
/// tangents of input, recurrent, state and learnt leaves are leaves too; all others are 0.
std::vector<NodeId> tangents(ExpressionGraph& graph, std::span<const NodeId> outputs);

}  // namespace penstock::custom
