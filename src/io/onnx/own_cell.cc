#include "io/onnx/own_cell.h"

#include <stdexcept>
#include <utility>

namespace penstock::io {

namespace {

using formula::Operation;

Symbol one_if(const char* comparison, const Symbol& a, const Symbol& b) {
  return Symbol::write("Where", {Symbol::write(comparison, {a, b}), Symbol(1.0f), Symbol(0.0f)});
}

/// The operator of ONNX for a function of one argument, or null.
const char* function_name(Operation operation) {
  constexpr std::pair<Operation, const char*> names[] = {
      {Operation::log, "Log"}, {Operation::relu, "Relu"}, {Operation::erf, "Erf"}, {Operation::sin, "Sin"},
      {Operation::cos, "Cos"}, {Operation::sqrt, "Sqrt"}, {Operation::abs, "Abs"}};
  for (const auto& [known, name] : names) {
    if (known == operation) return name;
  }
  return nullptr;
}

Symbol written(Operation operation, const Symbol& a, const Symbol& b, const Symbol& c) {
  if (const char* const name = function_name(operation)) return Symbol::write(name, {a});
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
    case Operation::tanh:
      return Tanh(a);
    case Operation::sigmoid:
      return Sigmoid(a);
    case Operation::softplus:
      return Softplus(a);
    case Operation::min:
      return Symbol::write("Min", {a, b});
    case Operation::max:
      return Max(a, b);
    case Operation::clamp:  // limits of Clip are scalars
      return Symbol::write("Min", {Max(a, b), c});
    case Operation::less:
      return one_if("Less", a, b);
    case Operation::less_equal:
      return one_if("LessOrEqual", a, b);
    case Operation::equal:
      return one_if("Equal", a, b);
    case Operation::where:
      return SelectZero(a, c, b);
    default:
      throw std::logic_error("a leaf has no operands");
  }
}

}  // namespace

std::vector<Symbol> write_formula(const formula::Formula& formula, const std::vector<formula::NodeId>& roots,
                                  const std::function<Symbol(formula::Operation, int)>& leaf,
                                  const std::function<Symbol(const Symbol&)>& mean) {
  const std::vector<bool> used = reachable(formula, roots);
  std::vector<Symbol> symbols(used.size());
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    const formula::Node& node = formula[static_cast<formula::NodeId>(id)];
    if (node.operation == Operation::constant) {
      symbols[id] = Symbol(static_cast<float>(node.value));
    } else if (node.operands().empty()) {
      symbols[id] = leaf(node.operation, node.index);
    } else if (node.operation == formula::Operation::mean) {
      symbols[id] = mean(symbols[static_cast<std::size_t>(node.of[0])]);
    } else {
      Symbol of[3];
      for (std::size_t i = 0; i < node.operands().size(); ++i) of[i] = symbols[static_cast<std::size_t>(node.of[i])];
      symbols[id] = written(node.operation, of[0], of[1], of[2]);
    }
  }
  std::vector<Symbol> results;
  for (const formula::NodeId root : roots) results.push_back(symbols[static_cast<std::size_t>(root)]);
  return results;
}

}  // namespace penstock::io
