#include "io/onnx/custom_cell.h"

#include <map>

namespace penstock::io {

namespace {

using custom::Operation;

Symbol one_if(const char* comparison, const Symbol& a, const Symbol& b) {
  return Symbol::write("Where", {Symbol::write(comparison, {a, b}), Symbol(1.0f), Symbol(0.0f)});
}

Symbol written(Operation operation, const Symbol& first, const Symbol& second, const Symbol& third) {
  using enum Operation;
  using Operand = const Symbol&;
  using Write = Symbol (*)(Operand a, Operand b, Operand c);
  static const std::map<Operation, Write> all = {
      {add, [](Operand a, Operand b, Operand) { return a + b; }},
      {subtract, [](Operand a, Operand b, Operand) { return a - b; }},
      {multiply, [](Operand a, Operand b, Operand) { return a * b; }},
      {divide, [](Operand a, Operand b, Operand) { return a / b; }},
      {multiply_add, [](Operand a, Operand b, Operand c) { return MulAdd(a, b, c); }},
      {subtract_product, [](Operand a, Operand b, Operand c) { return c - a * b; }},
      {exp, [](Operand a, Operand, Operand) { return Exp(a); }},
      {log, [](Operand a, Operand, Operand) { return Symbol::write("Log", {a}); }},
      {tanh, [](Operand a, Operand, Operand) { return Tanh(a); }},
      {sigmoid, [](Operand a, Operand, Operand) { return Sigmoid(a); }},
      {softplus, [](Operand a, Operand, Operand) { return Softplus(a); }},
      {relu, [](Operand a, Operand, Operand) { return Symbol::write("Relu", {a}); }},
      {erf, [](Operand a, Operand, Operand) { return Symbol::write("Erf", {a}); }},
      {sin, [](Operand a, Operand, Operand) { return Symbol::write("Sin", {a}); }},
      {cos, [](Operand a, Operand, Operand) { return Symbol::write("Cos", {a}); }},
      {sqrt, [](Operand a, Operand, Operand) { return Symbol::write("Sqrt", {a}); }},
      {Operation::abs, [](Operand a, Operand, Operand) { return Abs(a); }},
      {Operation::min,
       [](Operand a, Operand b, Operand) {
         return Symbol::write("Min", {a, b});
       }},
      {Operation::max, [](Operand a, Operand b, Operand) { return Max(a, b); }},
      // Limits of Clip are scalars.
      {clamp,
       [](Operand a, Operand b, Operand c) {
         return Symbol::write("Min", {Max(a, b), c});
       }},
      {less, [](Operand a, Operand b, Operand) { return one_if("Less", a, b); }},
      {less_equal, [](Operand a, Operand b, Operand) { return one_if("LessOrEqual", a, b); }},
      {equal, [](Operand a, Operand b, Operand) { return one_if("Equal", a, b); }},
      {where, [](Operand a, Operand b, Operand c) { return SelectZero(a, c, b); }},
  };
  return all.at(operation)(first, second, third);
}

}  // namespace

std::vector<std::string> write_expressions(OnnxGraph& body, const custom::ExpressionGraph& graph,
                                           const std::vector<custom::NodeId>& roots, const std::string& like,
                                           const std::function<Symbol(custom::Operation, int)>& leaf,
                                           const std::function<Symbol(const Symbol&)>& mean) {
  const std::vector<bool> used = reachable(graph, roots);
  std::vector<Symbol> symbols(used.size());
  std::vector<bool> full(used.size());  // as large as `like`
  const auto widened = [&](custom::NodeId of) -> Symbol {
    const auto id = static_cast<std::size_t>(of);
    if (full[id]) return symbols[id];
    return {body, body.node("Expand", {symbols[id].name(), body.node("Shape", {like})})};
  };
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    const custom::Node& node = graph[static_cast<custom::NodeId>(id)];
    if (node.operation == Operation::constant) {
      symbols[id] = {body, body.scalar(static_cast<float>(node.value))};
    } else if (node.operands().empty()) {
      symbols[id] = leaf(node.operation, node.index);
      full[id] = node.operation != Operation::learnt;
    } else if (node.operation == Operation::mean) {
      symbols[id] = mean(widened(node.of[0]));
    } else {
      Symbol of[3];
      for (std::size_t i = 0; i < node.operands().size(); ++i) {
        const auto operand = static_cast<std::size_t>(node.of[i]);
        of[i] = symbols[operand];
        full[id] = full[id] || full[operand];
      }
      symbols[id] = written(node.operation, of[0], of[1], of[2]);
    }
  }
  std::vector<std::string> names;
  for (const custom::NodeId root : roots) names.push_back(widened(root).name());
  return names;
}

}  // namespace penstock::io
