// A derived cell as C++ text, which NVRTC compiles into the kernels of every engine.

#include "custom/cuda_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"

namespace penstock::custom {

namespace {

/// Returns the float that the constant rounds to, in all its digits; the largest float for what lies beyond.
std::string constant_text(double value) {
  const auto rounded = static_cast<float>(
      std::clamp<double>(value, -std::numeric_limits<float>::max(), std::numeric_limits<float>::max()));
  return fmt::format("V({:a}f)", rounded);
}

bool is_gate_function(Operation operation) {
  return operation == Operation::tanh || operation == Operation::sigmoid || operation == Operation::softplus;
}

/// Returns whether the operation's result has a bounded absolute error if its operands have one.
bool keeps_absolute_error(Operation operation) {
  using enum Operation;
  constexpr Operation all[] = {add,  subtract, multiply, divide, multiply_add, subtract_product,
                               relu, abs,      min,      max,    clamp,        where};
  return std::ranges::find(all, operation) != std::end(all);
}

/// Returns whether a quotient, logarithm or root reads a tanh, sigmoid or softplus, or a sum of such values. Then the
/// relative error of a small value matters, and the chip's own tanh has only a small absolute error.
bool needs_precise_gates(const ExpressionGraph& graph) {
  std::vector<bool> absolute(static_cast<std::size_t>(graph.size()));
  const auto at = [&](NodeId id) { return absolute[static_cast<std::size_t>(id)]; };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    const auto operands = node.operands();
    const bool any = std::any_of(operands.begin(), operands.end(), at);
    absolute[static_cast<std::size_t>(id)] =
        is_gate_function(node.operation) || (keeps_absolute_error(node.operation) && any);
    if (node.operation == Operation::divide && at(node.of[1])) return true;
    if ((node.operation == Operation::log || node.operation == Operation::sqrt) && at(node.of[0])) return true;
  }
  return false;
}

std::string leaf_text(Operation operation, int index, bool scan) {
  switch (operation) {
    case Operation::input:
      return fmt::format("wx[{}]", index);
    case Operation::recurrent:
      return fmt::format("rh[{}]", index);
    case Operation::state:
      return fmt::format("prev[{}]", index);
    case Operation::kept:
      return fmt::format("save[{}]", index);
    case Operation::gradient:
      if (scan) return index == 0 ? "da" : "db";
      return fmt::format("dnext[{}]", index);
    case Operation::learnt:
      return fmt::format("learnt[{}]", index);
    default:
      return "";  // tangents, which these programs do not read
  }
}

/// The statements of a function: those that compute the first `results` results of its program, then those that store
/// results.
class Body {
 public:
  Body(const Program& program, std::size_t results, bool precise, bool scan)
      : program_(program), precise_(precise), scan_(scan), value_(static_cast<std::size_t>(program.slots)) {
    for (const Program::Leaf& leaf : program.leaves) value_[leaf.slot] = leaf_text(leaf.operation, leaf.index, scan);
    for (const Program::Constant& constant : program.constants) value_[constant.slot] = constant_text(constant.value);
    for (const Program::Instruction& step : program.instructions) add(step);
    write(results);
  }

  /// Stores a result of the program in `place`, which may be several: "a = b".
  void store(std::string_view place, std::size_t result) {
    text_ += fmt::format("    {} = {};\n", place, value_[program_.results[result]]);
  }
  void store_zero(std::string_view place) { text_ += fmt::format("    {} = V(0.0f);\n", place); }

  const std::string& text() const { return text_; }

  /// The declaration of an array of values that the function reads, without a name if it reads none.
  std::string input(std::string_view name, int count) const {
    const bool is_read = text_.find(fmt::format("{}[", name)) != std::string::npos;
    return fmt::format("const V (&{})[{}]", is_read ? name : "", count);
  }
  /// Returns the declaration of a parameter with a single value.
  std::string scalar(std::string_view name) const {
    return text_.find(name) != std::string::npos ? fmt::format("V {}", name) : "V";
  }

 private:
  struct Statement {
    std::string text;
    std::vector<std::string> to, reads;
  };

  void add(const Program::Instruction& step) {
    std::array<std::string, 3> operand;
    for (std::size_t i = 0; i < static_cast<std::size_t>(arity(step.operation)); ++i) operand[i] = value_[step.of[i]];
    const std::string name = value_[step.to] = fmt::format("v{}", count_++);
    if (step.operation == Operation::subtract && operand[0] == constant_text(0)) {
      negative_[name] = operand[1], negative_[operand[1]] = name;
    }
    if (scan_ && step.operation == Operation::sigmoid && add_sigmoid(operand[0], name)) return;
    const std::string value = fmt::format(fmt::runtime(text_of(step.operation)), operand[0], operand[1], operand[2]);
    const bool precise = precise_ && is_gate_function(step.operation);
    statements_.push_back({fmt::format("const V {} = {}{};", name, precise ? "Precise" : "", value),
                           {name},
                           {operand.begin(), operand.end()}});
  }

  /// Computes sigmoid(x) together with an earlier sigmoid(-x), if there is one: both need one exponential.
  bool add_sigmoid(const std::string& x, const std::string& name) {
    const auto other = sigmoid_.find(negative_[x]);
    if (other == sigmoid_.end()) {
      sigmoid_[x] = statements_.size();
      return false;
    }
    Statement& both = statements_[other->second];
    both.to.push_back(name);
    both.text = fmt::format("V {0}, {1};\n    Sigmoids({2}, {0}, {1});", both.to[0], name, other->first);
    return true;
  }

  /// Writes the statements that the results need.
  void write(std::size_t results) {
    std::set<std::string> wanted;
    for (std::size_t i = 0; i < results; ++i) wanted.insert(value_[program_.results[i]]);
    std::vector<bool> needed(statements_.size());
    for (std::size_t i = statements_.size(); i-- > 0;) {
      const auto& [text, to, reads] = statements_[i];
      needed[i] = std::any_of(to.begin(), to.end(), [&](const auto& name) { return wanted.count(name) > 0; });
      if (needed[i]) wanted.insert(reads.begin(), reads.end());
    }
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (needed[i]) text_ += fmt::format("    {}\n", statements_[i].text);
    }
  }

  const Program& program_;
  bool precise_, scan_;
  std::vector<std::string> value_;  // of each slot
  std::vector<Statement> statements_;
  std::map<std::string, std::string> negative_;  // of a value: the value that is its negative
  std::map<std::string, std::size_t> sigmoid_;   // of an argument: the statement
  int count_ = 0;
  std::string text_;
};

std::string function_text(std::string_view name, const std::string& parameters, const Body& body) {
  return fmt::format("\n  template <class V>\n  PENSTOCK_DEVICE void {}({}) {{\n{}  }}\n", name, parameters,
                     body.text());
}

std::string array_text(std::string_view name, int count) { return fmt::format("V (&{})[{}]", name, count); }

/// The parameter of the values of learnt vectors, or of their gradients, with a comma; nothing if there are none.
std::string learnt_parameter(const std::string& parameter, std::size_t learnt) {
  return learnt == 0 ? "" : parameter + ", ";
}

std::string dense_functions(const DerivedCell& cell, bool precise) {
  const int gates = cell.cell.gates, states = static_cast<int>(cell.cell.states.size());
  const int kept = static_cast<int>(cell.kept.size()), saved = std::max(kept, 1);
  const std::size_t learnt = cell.cell.learnt.size();
  const auto vectors = static_cast<int>(learnt);
  Body forward(cell.training, static_cast<std::size_t>(states + kept), precise, false);
  Body backward(cell.backward, static_cast<std::size_t>(2 * gates + states) + learnt, precise, false);
  std::size_t result = 0;
  for (int k = 0; k < states; ++k) forward.store(fmt::format("next[{}]", k), result++);
  for (int i = 0; i < kept; ++i) forward.store(fmt::format("save[{}]", i), result++);
  if (kept == 0) forward.store_zero("save[0]");
  const auto all_gates = static_cast<std::size_t>(gates);
  for (std::size_t g = 0; g < all_gates; ++g) {
    backward.store(cell.split_gradients ? fmt::format("dwx[{}]", g) : fmt::format("dwx[{0}] = drh[{0}]", g), g);
    if (cell.split_gradients) backward.store(fmt::format("drh[{}]", g), all_gates + g);
  }
  for (int k = 0; k < states; ++k) {
    backward.store(fmt::format("dprev[{}]", k), 2 * all_gates + static_cast<std::size_t>(k));
  }
  for (std::size_t k = 0; k < learnt; ++k) {
    backward.store(fmt::format("dlearnt[{}]", k), 2 * all_gates + static_cast<std::size_t>(states) + k);
  }
  return function_text(
             "forward",
             fmt::format("{}, {}, {}, {}{}, {}", forward.input("wx", gates), forward.input("rh", gates),
                         forward.input("prev", states), learnt_parameter(forward.input("learnt", vectors), learnt),
                         array_text("next", states), array_text("save", saved)),
             forward) +
         function_text(
             "backward",
             fmt::format("{}, {}, {}{}, {}{}, {}, {}", backward.input("save", saved), backward.input("prev", states),
                         learnt_parameter(backward.input("learnt", vectors), learnt), backward.input("dnext", states),
                         learnt_parameter(array_text("dlearnt", vectors), learnt), array_text("dwx", gates),
                         array_text("drh", gates), array_text("dprev", states)),
             backward);
}

std::string scan_functions(const DerivedCell& cell, bool precise) {
  const int gates = cell.cell.gates;
  const std::size_t learnt = cell.cell.learnt.size();
  const auto vectors = static_cast<int>(learnt);
  Body affine(cell.forward, 2, precise, true);
  Body backward(cell.backward, static_cast<std::size_t>(gates) + learnt, precise, true);
  affine.store("a", 0);
  affine.store("b", 1);
  for (int g = 0; g < gates; ++g) backward.store(fmt::format("dwx[{}]", g), static_cast<std::size_t>(g));
  for (std::size_t k = 0; k < learnt; ++k) {
    backward.store(fmt::format("dlearnt[{}]", k), static_cast<std::size_t>(gates) + k);
  }
  return function_text("affine",
                       fmt::format("{}, {}V& a, V& b", affine.input("wx", gates),
                                   learnt_parameter(affine.input("learnt", vectors), learnt)),
                       affine) +
         function_text("affine_backward",
                       fmt::format("{}, {}{}, {}, {}{}", backward.input("wx", gates),
                                   learnt_parameter(backward.input("learnt", vectors), learnt), backward.scalar("da"),
                                   backward.scalar("db"), learnt_parameter(array_text("dlearnt", vectors), learnt),
                                   array_text("dwx", gates)),
                       backward);
}

}  // namespace

std::string cuda_text(const DerivedCell& cell, std::string_view name) {
  const bool precise = needs_precise_gates(cell.cell.graph);
  std::string text =
      fmt::format("struct {} {{\n  static constexpr int gates = {};\n  static constexpr int states = {};\n", name,
                  cell.cell.gates, cell.cell.states.size());
  if (!cell.cell.learnt.empty()) text += fmt::format("  static constexpr int learnt = {};\n", cell.cell.learnt.size());
  if (cell.cell.scan) {
    text += "  static constexpr bool splits_gain = false;\n  static constexpr bool scan = true;\n";
    text += scan_functions(cell, precise);
  } else {
    text += fmt::format("  static constexpr int saved = {};\n  static constexpr int phases = 1;\n",
                        std::max<std::size_t>(cell.kept.size(), 1));
    text += fmt::format("  static constexpr bool split_gradients = {};\n  static constexpr bool scan = false;\n",
                        cell.split_gradients);
    text += dense_functions(cell, precise);
  }
  return text + "};\n";
}

}  // namespace penstock::custom
