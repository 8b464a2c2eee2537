#include "custom/checks.h"

#include "base/check.h"
#include "custom/finite.h"

namespace penstock::custom {

void check_operation(Operation operation, bool computes) {
  require(computes, "'{}' is a leaf: it has no operands", to_string(operation));
}

void check_constant(double value) {
  require(is_finite_float(value), "a constant of a cell must be finite in 32 bits (3.4e38 at most), not {}", value);
}

void check_operands(const ExpressionGraph& graph, const Node& node) {
  for (const NodeId operand : node.operands()) {
    require(operand >= 0 && operand < graph.size(), "operands of '{}' must be nodes 0 to {}, not {}",
            to_string(node.operation), graph.size() - 1, operand);
  }
}

}  // namespace penstock::custom
