#pragma once

#include <initializer_list>
#include <string>

#include "io/onnx/onnx_graph.h"

/// Tracing of cells for the export to ONNX.
namespace penstock::io {

/// A value type for cells (cells/gate_functions.h) that records operations instead of computing: each operation on
/// symbols becomes a node of ONNX.
class Symbol {
 public:
  Symbol() = default;
  explicit Symbol(float constant) : constant_(constant) {}
  Symbol(OnnxGraph& graph, std::string name) : graph_(&graph), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  /// Adds a node of this operator. At least one operand must not be a constant.
  static Symbol write(const char* op, std::initializer_list<Symbol> operands);

  friend Symbol operator+(const Symbol& a, const Symbol& b) { return write("Add", {a, b}); }
  friend Symbol operator-(const Symbol& a, const Symbol& b) {
    return a.is_zero() ? write("Neg", {b}) : write("Sub", {a, b});
  }
  friend Symbol operator*(const Symbol& a, const Symbol& b) { return write("Mul", {a, b}); }
  friend Symbol operator/(const Symbol& a, const Symbol& b) { return write("Div", {a, b}); }
  friend Symbol MulAdd(const Symbol& a, const Symbol& b, const Symbol& c) { return a * b + c; }
  friend Symbol Max(const Symbol& a, const Symbol& b) { return write("Max", {a, b}); }
  friend Symbol Abs(const Symbol& x) { return write("Abs", {x}); }
  friend Symbol Clamp(const Symbol& x, const Symbol& low, const Symbol& high) { return write("Clip", {x, low, high}); }
  friend Symbol SelectPositive(const Symbol& x, const Symbol& a, const Symbol& b) {
    return write("Where", {write("GreaterOrEqual", {x, Symbol(0.0f)}), a, b});
  }
  friend Symbol SelectZero(const Symbol& x, const Symbol& a, const Symbol& b) {
    return write("Where", {write("Equal", {x, Symbol(0.0f)}), a, b});
  }
  friend Symbol Quotient(const Symbol& a, const Symbol& b) { return a / b; }
  /// Saturates as Exp() of the prelude.
  friend Symbol Exp(const Symbol& x) { return write("Exp", {Clamp(x, Symbol(-87.33f), Symbol(87.3f))}); }
  friend Symbol Tanh(const Symbol& x) { return write("Tanh", {x}); }
  friend Symbol Sigmoid(const Symbol& x) { return write("Sigmoid", {x}); }
  friend void Sigmoids(const Symbol& x, Symbol& of_x, Symbol& of_minus_x) {
    of_x = Sigmoid(x);
    of_minus_x = Sigmoid(Symbol(0.0f) - x);
  }
  friend Symbol Softplus(const Symbol& x) { return write("Softplus", {x}); }

 private:
  bool is_zero() const { return graph_ == nullptr && constant_ == 0.0f; }

  OnnxGraph* graph_ = nullptr;  // null: a constant
  float constant_ = 0.0f;
  std::string name_;
};

}  // namespace penstock::io
