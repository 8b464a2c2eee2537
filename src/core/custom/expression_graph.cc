#include "custom/expression_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "custom/checks.h"
#include "custom/finite.h"

namespace penstock::custom {

namespace {

#include "cells/gate_functions.h"

struct OperationEntry {
  std::string_view name;
  int arity = 0;
  int cost = 0;
  std::string_view text = {};                               // of a kernel; {0}, {1} and {2} are the operands
  double (*value)(double a, double b, double c) = nullptr;  // null: a leaf
};

/// Operations in the order of the enumeration. Costs are measured instructions of cells/gate_functions.h, rounded.
constexpr OperationEntry kOperations[] = {
    {"input"},
    {"recurrent"},
    {"state"},
    {"learnt"},
    {"gradient"},
    {"input_tangent"},
    {"recurrent_tangent"},
    {"state_tangent"},
    {"learnt_tangent"},
    {"kept"},
    {"constant"},
    {"add", 2, 1, "{0} + {1}", [](double a, double b, double) { return a + b; }},
    {"subtract", 2, 1, "{0} - {1}", [](double a, double b, double) { return a - b; }},
    {"multiply", 2, 1, "{0} * {1}", [](double a, double b, double) { return a * b; }},
    {"divide", 2, 4, "Ratio({0}, {1})", [](double a, double b, double) { return a / b; }},
    {"multiply_add", 3, 1, "MulAdd({0}, {1}, {2})", [](double a, double b, double c) { return MulAdd(a, b, c); }},
    {"subtract_product", 3, 1, "SubtractProduct({0}, {1}, {2})",
     [](double a, double b, double c) { return c - a * b; }},
    {"exp", 1, 12, "Exp({0})", [](double a, double, double) { return Exp(a); }},
    {"log", 1, 16, "Log({0})", [](double a, double, double) { return std::log(a); }},
    {"tanh", 1, 16, "Tanh({0})", [](double a, double, double) { return Tanh(a); }},
    {"sigmoid", 1, 14, "Sigmoid({0})", [](double a, double, double) { return Sigmoid(a); }},
    {"softplus", 1, 24, "Softplus({0})", [](double a, double, double) { return Softplus(a); }},
    {"relu", 1, 1, "Max({0}, V(0.0f))", [](double a, double, double) { return Max(a, 0); }},
    {"erf", 1, 24, "ErrorFunction({0})", [](double a, double, double) { return std::erf(a); }},
    {"sin", 1, 20, "Sine({0})", [](double a, double, double) { return std::sin(a); }},
    {"cos", 1, 20, "Cosine({0})", [](double a, double, double) { return std::cos(a); }},
    {"sqrt", 1, 4, "Root({0})", [](double a, double, double) { return std::sqrt(a); }},
    {"abs", 1, 1, "Abs({0})", [](double a, double, double) { return std::fabs(a); }},
    {"min", 2, 1, "Least({0}, {1})", [](double a, double b, double) { return b < a || std::isnan(b) ? b : a; }},
    {"max", 2, 1, "Most({0}, {1})", [](double a, double b, double) { return a < b || std::isnan(b) ? b : a; }},
    {"clamp", 3, 2, "Clamp({0}, {1}, {2})", [](double a, double b, double c) { return Clamp(a, b, c); }},
    {"less", 2, 1, "Less({0}, {1})", [](double a, double b, double) { return a < b ? 1.0 : 0.0; }},
    {"less_equal", 2, 1, "LessEqual({0}, {1})", [](double a, double b, double) { return a <= b ? 1.0 : 0.0; }},
    {"equal", 2, 1, "Equal({0}, {1})", [](double a, double b, double) { return a == b ? 1.0 : 0.0; }},
    {"where", 3, 1, "SelectZero({0}, {2}, {1})", [](double a, double b, double c) { return a != 0 ? b : c; }},
    {"mean", 1, 2, "Mean({0})", [](double a, double, double) { return a; }},
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

std::string_view text_of(Operation operation) { return entry(operation).text; }

double apply(Operation operation, double a, double b, double c) {
  const auto value = entry(operation).value;
  check_operation(operation, value != nullptr);
  return value(a, b, c);
}

NodeId ExpressionGraph::leaf(Operation operation, int index) {
  Node node;
  node.operation = operation;
  node.index = index;
  return share(node);
}

NodeId ExpressionGraph::constant(double value) {
  check_constant(value);
  Node node;
  node.value = value;
  return share(node);
}

NodeId ExpressionGraph::make(Operation operation, NodeId a, NodeId b, NodeId c) {
  Node node;
  node.operation = operation;
  node.of = {a, b, c};
  check_operands(*this, node);
  // One order of the operands where the order does not matter.
  const bool commutes = operation == Operation::add || operation == Operation::multiply ||
                        operation == Operation::multiply_add || operation == Operation::subtract_product;
  if (commutes && node.of[1] < node.of[0]) std::swap(node.of[0], node.of[1]);
  double value = 0;
  if (folded(node, value)) return constant(value);
  const NodeId simple = simplified(node);
  return simple != kNoNode ? simple : share(node);
}

bool ExpressionGraph::is_constant(NodeId id, double value) const {
  const Node& node = (*this)[id];
  return node.operation == Operation::constant && node.value == value;
}

NodeId ExpressionGraph::share(const Node& node) {
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

/// Returns whether all operands are constants and the result is a finite float. Writes the result to `value`.
bool ExpressionGraph::folded(const Node& node, double& value) const {
  double operands[3] = {};
  std::size_t i = 0;
  for (const NodeId operand : node.operands()) {
    if ((*this)[operand].operation != Operation::constant) return false;
    operands[i++] = (*this)[operand].value;
  }
  value = apply(node.operation, operands[0], operands[1], operands[2]);
  return is_finite_float(value);
}

/// A node that has the same value for every argument, NaN and infinity included, or kNoNode.
NodeId ExpressionGraph::simplified(const Node& node) {
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

std::vector<bool> reachable(const ExpressionGraph& graph, std::span<const NodeId> roots) {
  std::vector<bool> marked(static_cast<std::size_t>(graph.size()));
  for (const NodeId root : roots) marked[static_cast<std::size_t>(root)] = true;
  for (NodeId id = graph.size() - 1; id >= 0; --id) {
    if (!marked[static_cast<std::size_t>(id)]) continue;
    for (const NodeId operand : graph[id].operands()) marked[static_cast<std::size_t>(operand)] = true;
  }
  return marked;
}

}  // namespace penstock::custom
