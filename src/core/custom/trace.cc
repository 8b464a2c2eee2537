#include "custom/trace.h"

#include <algorithm>
#include <numbers>

#include "base/check.h"
#include "base/quote.h"

namespace penstock {

namespace {

using custom::Operation;

/// The graph that some operands belong to, or null if all are constants.
custom::ExpressionGraph* common_graph(std::initializer_list<const CellValue*> operands) {
  custom::ExpressionGraph* common = nullptr;
  for (const CellValue* operand : operands) {
    if (operand->graph() == nullptr) continue;
    require(common == nullptr || common == operand->graph(),
            "an operation of a cell combines symbols of two cells: use only the symbols that the equations were given");
    common = operand->graph();
  }
  return common;
}

double value_of(const CellValue& constant) {
  custom::ExpressionGraph alone;
  return alone[constant.node_in(alone)].value;
}

CellValue traced(Operation operation, const CellValue& a, const CellValue& b = 0.0, const CellValue& c = 0.0) {
  const int count = custom::arity(operation);
  custom::ExpressionGraph* const found = common_graph({&a, &b, &c});
  if (found == nullptr) return custom::apply(operation, value_of(a), value_of(b), value_of(c));
  const auto node = [&](const CellValue& operand, int i) {
    return i < count ? operand.node_in(*found) : custom::kNoNode;
  };
  return {*found, found->make(operation, node(a, 0), node(b, 1), node(c, 2))};
}

}  // namespace

int CellValue::node_in(custom::ExpressionGraph& graph) const {
  return graph_ == nullptr ? graph.constant(constant_) : node_;
}

CellValue operator+(CellValue a, CellValue b) { return traced(Operation::add, a, b); }
CellValue operator-(CellValue a, CellValue b) { return traced(Operation::subtract, a, b); }
CellValue operator*(CellValue a, CellValue b) { return traced(Operation::multiply, a, b); }
CellValue operator/(CellValue a, CellValue b) { return traced(Operation::divide, a, b); }
CellValue operator-(CellValue x) { return traced(Operation::subtract, 0.0, x); }
CellValue multiply_add(CellValue a, CellValue b, CellValue c) { return traced(Operation::multiply_add, a, b, c); }
CellValue exp(CellValue x) { return traced(Operation::exp, x); }
CellValue log(CellValue x) { return traced(Operation::log, x); }
CellValue tanh(CellValue x) { return traced(Operation::tanh, x); }
CellValue sigmoid(CellValue x) { return traced(Operation::sigmoid, x); }
CellValue softplus(CellValue x) { return traced(Operation::softplus, x); }
CellValue relu(CellValue x) { return traced(Operation::relu, x); }
CellValue erf(CellValue x) { return traced(Operation::erf, x); }
CellValue gelu(CellValue x) { return 0.5 * x * (1.0 + erf(x * (0.5 * std::numbers::sqrt2))); }
CellValue sin(CellValue x) { return traced(Operation::sin, x); }
CellValue cos(CellValue x) { return traced(Operation::cos, x); }
CellValue sqrt(CellValue x) { return traced(Operation::sqrt, x); }
CellValue abs(CellValue x) { return traced(Operation::abs, x); }
CellValue min(CellValue a, CellValue b) { return traced(Operation::min, a, b); }
CellValue max(CellValue a, CellValue b) { return traced(Operation::max, a, b); }
CellValue clamp(CellValue x, CellValue low, CellValue high) { return traced(Operation::clamp, x, low, high); }
CellValue less(CellValue a, CellValue b) { return traced(Operation::less, a, b); }
CellValue less_equal(CellValue a, CellValue b) { return traced(Operation::less_equal, a, b); }
CellValue equal(CellValue a, CellValue b) { return traced(Operation::equal, a, b); }
CellValue where(CellValue condition, CellValue a, CellValue b) { return traced(Operation::where, condition, a, b); }
CellValue mean(CellValue x) { return traced(Operation::mean, x); }

namespace custom {

namespace {

std::vector<CellValue> leaves(ExpressionGraph& graph, Operation operation, std::size_t count) {
  std::vector<CellValue> symbols;
  for (std::size_t i = 0; i < count; ++i) {
    symbols.emplace_back(graph, graph.leaf(operation, static_cast<int>(i)));
  }
  return symbols;
}

}  // namespace

CustomCell trace_cell(const CellDefinition& definition, const CellEquations& equations) {
  CustomCell cell{definition, {}, {}};
  const std::string source = "cell " + in_quotes(definition.name);
  const int most = cell.scan ? kMostScanGates : kMostGates;
  require(cell.gates >= 1 && cell.gates <= most, "{}: gates must be 1 to {} for a {} cell, not {}", source, most,
          cell.scan ? "scan" : "dense", cell.gates);
  const auto gates = static_cast<std::size_t>(cell.gates);
  CellSymbols symbols;
  symbols.wx = leaves(cell.graph, Operation::input, gates);
  if (!cell.scan) {
    symbols.rh = leaves(cell.graph, Operation::recurrent, gates);
    symbols.s = leaves(cell.graph, Operation::state, cell.states.size());
  }
  symbols.p = leaves(cell.graph, Operation::learnt, cell.learnt.size());
  for (const CellValue& output : equations(symbols)) {
    require(output.graph() == nullptr || output.graph() == &cell.graph,
            "{}: the equations return a symbol of another cell", source);
    cell.outputs.push_back(output.node_in(cell.graph));
  }
  check_cell(cell, source, ErrorCode::invalid_argument);
  return cell;
}

}  // namespace custom

}  // namespace penstock
