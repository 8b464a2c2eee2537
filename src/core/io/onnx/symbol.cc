#include "io/onnx/symbol.h"

#include <stdexcept>
#include <vector>

namespace penstock::io {

Symbol Symbol::write(const char* op, std::initializer_list<Symbol> operands) {
  OnnxGraph* graph = nullptr;
  for (const Symbol& operand : operands) graph = operand.graph_ != nullptr ? operand.graph_ : graph;
  if (graph == nullptr) throw std::logic_error("an expression of constants alone");
  std::vector<std::string> names;
  for (const Symbol& operand : operands) {
    names.push_back(operand.graph_ != nullptr ? operand.name_ : graph->scalar(operand.constant_));
  }
  return {*graph, graph->node(op, names)};
}

}  // namespace penstock::io
