#pragma once

#include "custom/expression_graph.h"

/// What an ExpressionGraph requires of its callers. The C runtime, which is compiled without exceptions, has these
/// functions of its own: what reads a cell there has checked the same before.
namespace penstock::custom {

/// Throws Error(invalid_argument) unless an operation `computes` a value of operands.
void check_operation(Operation operation, bool computes);
/// Throws Error(invalid_argument) for a constant that is not finite in 32 bits.
void check_constant(double value);
/// Throws Error(invalid_argument) unless the operands of a node are in the graph.
void check_operands(const ExpressionGraph& graph, const Node& node);

}  // namespace penstock::custom
