#include "formula/formula.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace penstock::formula {

namespace {

#include "cells/prelude.h"

struct OperationEntry {
  std::string_view name;
  int arity;
  int cost;
};

/// In the order of the enumeration. Costs are measured instructions of cells/prelude.h, rounded.
constexpr OperationEntry kOperations[] = {
    {"input", 0, 0},
    {"recurrent", 0, 0},
    {"state", 0, 0},
    {"learnt", 0, 0},
    {"gradient", 0, 0},
    {"input_tangent", 0, 0},
    {"recurrent_tangent", 0, 0},
    {"state_tangent", 0, 0},
    {"learnt_tangent", 0, 0},
    {"kept", 0, 0},
    {"constant", 0, 0},
    {"add", 2, 1},
    {"subtract", 2, 1},
    {"multiply", 2, 1},
    {"divide", 2, 4},
    {"multiply_add", 3, 1},
    {"subtract_product", 3, 1},
    {"exp", 1, 12},
    {"log", 1, 16},
    {"tanh", 1, 16},
    {"sigmoid", 1, 14},
    {"softplus", 1, 24},
    {"relu", 1, 1},
    {"erf", 1, 24},
    {"sin", 1, 20},
    {"cos", 1, 20},
    {"sqrt", 1, 4},
    {"abs", 1, 1},
    {"min", 2, 1},
    {"max", 2, 1},
    {"clamp", 3, 2},
    {"less", 2, 1},
    {"less_equal", 2, 1},
    {"equal", 2, 1},
    {"where", 3, 1},
    {"mean", 1, 2},
};
static_assert(std::size(kOperations) == static_cast<std::size_t>(Operation::mean) + 1);

const OperationEntry& entry(Operation operation) { return kOperations[static_cast<std::size_t>(operation)]; }

}  // namespace

int arity(Operation operation) { return entry(operation).arity; }
std::string_view to_string(Operation operation) { return entry(operation).name; }
int cost(Operation operation) { return entry(operation).cost; }

bool find_operation(std::string_view name, Operation& operation) {
  const auto* const found =
      std::find_if(std::begin(kOperations), std::end(kOperations), [&](const auto& of) { return of.name == name; });
  if (found == std::end(kOperations)) return false;
  operation = static_cast<Operation>(found - std::begin(kOperations));
  return true;
}

double apply(Operation operation, double a, double b, double c) {
  switch (operation) {
    case Operation::add:
      return a + b;
    case Operation::subtract:
      return a - b;
    case Operation::multiply:
      return a * b;
    case Operation::divide:
      return a / b;
    case Operation::multiply_add:
      return MulAdd(a, b, c);
    case Operation::subtract_product:
      return c - a * b;
    case Operation::exp:
      return Exp(a);
    case Operation::log:
      return std::log(a);
    case Operation::tanh:
      return Tanh(a);
    case Operation::sigmoid:
      return Sigmoid(a);
    case Operation::softplus:
      return Softplus(a);
    case Operation::relu:
      return Max(a, 0);
    case Operation::erf:
      return std::erf(a);
    case Operation::sin:
      return std::sin(a);
    case Operation::cos:
      return std::cos(a);
    case Operation::sqrt:
      return std::sqrt(a);
    case Operation::abs:
      return std::fabs(a);
    case Operation::min:
      return b < a || std::isnan(b) ? b : a;
    case Operation::max:
      return a < b || std::isnan(b) ? b : a;
    case Operation::clamp:
      return Clamp(a, b, c);
    case Operation::less:
      return a < b ? 1 : 0;
    case Operation::less_equal:
      return a <= b ? 1 : 0;
    case Operation::equal:
      return a == b ? 1 : 0;
    case Operation::where:
      return a != 0 ? b : c;
    case Operation::mean:
      return a;
    default:
      fail(ErrorCode::invalid_argument, "'{}' is a leaf: it has no operands", to_string(operation));
  }
}

NodeId Formula::leaf(Operation operation, int index) {
  Node node;
  node.operation = operation;
  node.index = index;
  return share(node);
}

NodeId Formula::constant(double value) {
  require(std::isfinite(value), "a constant of a cell must be finite, not {}", value);
  Node node;
  node.value = value;
  return share(node);
}

NodeId Formula::make(Operation operation, NodeId a, NodeId b, NodeId c) {
  Node node;
  node.operation = operation;
  node.of = {a, b, c};
  for (const NodeId operand : node.operands()) {
    require(operand >= 0 && operand < size(), "operands of '{}' must be nodes 0 to {}, not {}", to_string(operation),
            size() - 1, operand);
  }
  // One order of the operands where the order does not matter.
  const bool commutes = operation == Operation::add || operation == Operation::multiply ||
                        operation == Operation::multiply_add || operation == Operation::subtract_product;
  if (commutes && node.of[1] < node.of[0]) std::swap(node.of[0], node.of[1]);
  double value = 0;
  if (folded(node, value)) return constant(value);
  const NodeId simple = simplified(node);
  return simple != kNoNode ? simple : share(node);
}

bool Formula::is_constant(NodeId id, double value) const {
  const Node& node = (*this)[id];
  return node.operation == Operation::constant && node.value == value;
}

NodeId Formula::share(const Node& node) {
  const Key key{node.operation, node.index, std::bit_cast<std::uint64_t>(node.value),
                node.of[0],     node.of[1], node.of[2]};
  const auto [place, is_new] = known_.try_emplace(key, size());
  if (is_new) {
    int below = 0;
    for (const NodeId operand : node.operands()) below = std::max(below, depth(operand) + 1);
    nodes_.push_back(node);
    depth_.push_back(below);
  }
  return place->second;
}

/// Whether all operands are constants whose result is finite.
bool Formula::folded(const Node& node, double& value) const {
  double operands[3] = {};
  std::size_t i = 0;
  for (const NodeId operand : node.operands()) {
    if ((*this)[operand].operation != Operation::constant) return false;
    operands[i++] = (*this)[operand].value;
  }
  value = apply(node.operation, operands[0], operands[1], operands[2]);
  return std::isfinite(value);
}

/// A node that has the same value for every argument, NaN and infinity included, or kNoNode.
NodeId Formula::simplified(const Node& node) {
  const auto [a, b, c] = node.of;
  switch (node.operation) {
    case Operation::add:
      return is_constant(a, 0) ? b : is_constant(b, 0) ? a : kNoNode;
    case Operation::subtract:
      return is_constant(b, 0) ? a : kNoNode;
    case Operation::multiply:
      return is_constant(a, 1) ? b : is_constant(b, 1) ? a : kNoNode;
    case Operation::divide:
      return is_constant(b, 1) ? a : kNoNode;
    case Operation::multiply_add:
      if (is_constant(c, 0)) return make(Operation::multiply, a, b);
      if (is_constant(a, 1)) return make(Operation::add, b, c);
      return is_constant(b, 1) ? make(Operation::add, a, c) : kNoNode;
    case Operation::where:
      return b == c ? b : kNoNode;
    default:
      return kNoNode;
  }
}

std::vector<bool> reachable(const Formula& formula, std::span<const NodeId> roots) {
  std::vector<bool> marked(static_cast<std::size_t>(formula.size()));
  for (const NodeId root : roots) marked[static_cast<std::size_t>(root)] = true;
  for (NodeId id = formula.size() - 1; id >= 0; --id) {
    if (!marked[static_cast<std::size_t>(id)]) continue;
    for (const NodeId operand : formula[id].operands()) marked[static_cast<std::size_t>(operand)] = true;
  }
  return marked;
}

}  // namespace penstock::formula
