// A derived cell as C++ text, which NVRTC compiles into the kernels of every engine.

#include "custom/cuda_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

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

/// What the texts of a cell's functions differ in.
struct Style {
  bool precise = false;   ///< Gate functions have a small relative error.
  bool scan = false;      ///< Of a scan cell.
  bool averages = false;  ///< Units read means over their head.
  int gates = 0;
};

/// The statements of a function: those that compute the first `results` results of its program, then those that store
/// results.
///
/// Means over a head take an exchange between threads. Those that do not depend on each other share one: statements are
/// in *stages*, and after each of them all means that are known then are computed together. A mean of squares of x
/// minus its own mean comes with that mean.
class Body {
 public:
  Body(const Program& program, std::size_t results, const Style& style)
      : program_(program), style_(style), value_(static_cast<std::size_t>(program.slots)) {
    for (const Program::Leaf& leaf : program.leaves) {
      value_[leaf.slot] = leaf_text(leaf.operation, leaf.index, style.scan);
    }
    for (const Program::Constant& constant : program.constants) value_[constant.slot] = constant_text(constant.value);
    for (const Program::Instruction& step : program.instructions) add(step);
    if (style.averages) {
      pair_moments();
      write_stages(needed_for(results));
    } else {
      write(needed_for(results));
    }
  }

  /// Returns the number of values that each exchange carries for a row and head: a mean is one, with a mean of squares
  /// two.
  const std::vector<int>& exchanged() const { return exchanged_; }

  /// Returns the largest number of values that are alive at the same time, of a body in stages.
  int alive() const {
    std::map<std::string, std::size_t> last;
    std::set<std::string> now;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      for (const std::string& name : order_[i].reads) last[name] = i;
    }
    for (const auto& [name, use] : last) {
      if (made_by_.count(name) == 0) now.insert(name);
    }
    for (const Program::Slot result : program_.results) last[value_[result]] = order_.size();
    std::size_t most = now.size();
    for (std::size_t i = 0; i < order_.size(); ++i) {
      now.insert(order_[i].to.begin(), order_[i].to.end());
      most = std::max(most, now.size());
      std::erase_if(now, [&](const std::string& name) { return last[name] <= i; });
    }
    return static_cast<int>(most);
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
    Operation operation;
    std::size_t square = kNone;  ///< Of a mean of x: the statement of the mean of squares that comes with it.
    bool comes_with_mean = false;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void add(const Program::Instruction& step) {
    std::array<std::string, 3> operand;
    for (std::size_t i = 0; i < static_cast<std::size_t>(arity(step.operation)); ++i) operand[i] = value_[step.of[i]];
    const std::string name = value_[step.to] = fmt::format("v{}", count_++);
    if (step.operation == Operation::subtract && operand[0] == constant_text(0)) {
      negative_[name] = operand[1], negative_[operand[1]] = name;
    }
    if (style_.scan && step.operation == Operation::sigmoid && add_sigmoid(operand[0], name)) return;
    std::string value = fmt::format(fmt::runtime(text_of(step.operation)), operand[0], operand[1], operand[2]);
    const Statement* const root = step.operation == Operation::divide ? statement_of(operand[1]) : nullptr;
    if (style_.averages && root != nullptr && root->operation == Operation::sqrt) {
      operand[1] = root->reads[0];
      value = fmt::format("{} * InverseRoot({})", operand[0], operand[1]);
    }
    const bool precise = style_.precise && is_gate_function(step.operation);
    made_by_[name] = statements_.size();
    statements_.push_back({fmt::format("const V {} = {}{};", name, precise ? "Precise" : "", value),
                           {name},
                           {operand.begin(), operand.end()},
                           step.operation});
  }

  /// Returns the statement that makes a value; null for a leaf or a constant.
  Statement* statement_of(const std::string& name) {
    const auto found = made_by_.find(name);
    return found == made_by_.end() ? nullptr : &statements_[found->second];
  }

  /// Finds the means of (x - m) (x - m) where m is the mean of x.
  void pair_moments() {
    for (std::size_t i = 0; i < statements_.size(); ++i) {
      Statement& square = statements_[i];
      if (square.operation != Operation::mean) continue;
      const Statement* const product = statement_of(square.reads[0]);
      if (product == nullptr || product->operation != Operation::multiply || product->reads[0] != product->reads[1]) {
        continue;
      }
      const Statement* const centred = statement_of(product->reads[0]);
      if (centred == nullptr || centred->operation != Operation::subtract) continue;
      Statement* const mean = statement_of(centred->reads[1]);
      if (mean == nullptr || mean->operation != Operation::mean || mean->reads[0] != centred->reads[0]) continue;
      mean->square = i;
      square.comes_with_mean = true;
      square.reads = {mean->to[0]};
    }
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

  std::vector<bool> needed_for(std::size_t results) const {
    std::set<std::string> wanted;
    for (std::size_t i = 0; i < results; ++i) wanted.insert(value_[program_.results[i]]);
    std::vector<bool> needed(statements_.size());
    for (std::size_t i = statements_.size(); i-- > 0;) {
      const auto& [text, to, reads, operation, square, comes_with_mean] = statements_[i];
      needed[i] = std::any_of(to.begin(), to.end(), [&](const auto& name) { return wanted.count(name) > 0; });
      if (needed[i]) wanted.insert(reads.begin(), reads.end());
    }
    return needed;
  }

  void write(const std::vector<bool>& needed) {
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (needed[i]) text_ += fmt::format("    {}\n", statements_[i].text);
    }
  }

  void write_stages(const std::vector<bool>& needed) {
    // A statement's stage is one behind the stages of the means that it reads.
    std::map<std::string, std::size_t> known;  // in which stage
    std::vector<std::size_t> stage(statements_.size());
    std::size_t stages = 1;
    for (std::size_t i = 0; i < statements_.size(); ++i) {
      const Statement& statement = statements_[i];
      for (const std::string& name : statement.reads) {
        if (const auto found = known.find(name); found != known.end()) stage[i] = std::max(stage[i], found->second);
      }
      const bool exchanges = statement.operation == Operation::mean && !statement.comes_with_mean;
      known[statement.to[0]] = stage[i] + (exchanges ? 1 : 0);
      if (needed[i]) stages = std::max(stages, stage[i] + 1);
    }
    for (std::size_t s = 0; s < stages; ++s) {
      std::vector<std::size_t> means, with_squares;
      for (std::size_t i = 0; i < statements_.size(); ++i) {
        if (!needed[i] || stage[i] != s) continue;
        const Statement& statement = statements_[i];
        if (statement.operation != Operation::mean) {
          text_ += fmt::format("    {}\n", statement.text);
          order_.push_back(statement);
        } else if (!statement.comes_with_mean) {
          const bool with_square = statement.square != kNone && needed[statement.square];
          (with_square ? with_squares : means).push_back(i);
        }
      }
      if (!means.empty() || !with_squares.empty()) write_exchange(means, with_squares);
    }
  }

  /// Returns whether the operands are R h of all gates, in their order.
  bool are_products(const std::vector<std::string>& operands) const {
    std::size_t gate = 0;
    while (gate < operands.size() && operands[gate] == leaf_text(Operation::recurrent, static_cast<int>(gate), false)) {
      ++gate;
    }
    return gate == operands.size() && gate == static_cast<std::size_t>(style_.gates);
  }

  void write_exchange(const std::vector<std::size_t>& means, std::vector<std::size_t> with_squares) {
    const std::size_t number = exchanged_.size();
    std::ranges::sort(with_squares, {}, [&](std::size_t i) { return statements_[i].reads[0]; });
    std::vector<std::string> operands, results;
    for (const auto* const some : {&means, &std::as_const(with_squares)}) {
      for (const std::size_t i : *some) {
        results.push_back(fmt::format("{} = m{}[{}]", statements_[i].to[0], number, operands.size()));
        operands.push_back(statements_[i].reads[0]);
        order_.push_back(statements_[i]);
      }
    }
    for (std::size_t k = 0; k < with_squares.size(); ++k) {
      const Statement& square = statements_[statements_[with_squares[k]].square];
      results.push_back(fmt::format("{} = s{}[{}]", square.to[0], number, k));
      order_.push_back(square);
    }
    text_ += fmt::format("    V m{}[] = {{{}}}, s{}[{}];\n", number, fmt::join(operands, ", "), number,
                         std::max<std::size_t>(with_squares.size(), 1));
    text_ += fmt::format("    head.template average<{}, {}{}>(m{}, s{});\n", number, means.size(),
                         means.empty() && are_products(operands) ? ", true" : "", number, number);
    text_ += fmt::format("    const V {};\n", fmt::join(results, ", "));
    exchanged_.push_back(static_cast<int>(results.size()));
  }

  const Program& program_;
  Style style_;
  std::vector<std::string> value_;  // of each slot
  std::vector<Statement> statements_;
  std::map<std::string, std::string> negative_;  // of a value: the value that is its negative
  std::map<std::string, std::size_t> sigmoid_;   // of an argument: the statement
  std::map<std::string, std::size_t> made_by_;   // of a value: the statement
  std::vector<int> exchanged_;
  std::vector<Statement> order_;  // of a body in stages
  int count_ = 0;
  std::string text_;
};

std::string function_text(std::string_view name, bool averages, const std::string& parameters, const Body& body) {
  return fmt::format("\n  template <class V{}>\n  PENSTOCK_DEVICE void {}({}) {{\n{}  }}\n",
                     averages ? ", class Head" : "", name, parameters, body.text());
}

Style style_of(const DerivedCell& cell) {
  return {.precise = needs_precise_gates(cell.cell.graph),
          .scan = cell.cell.scan,
          .averages = cell.averages,
          .gates = cell.cell.gates};
}

std::string array_text(std::string_view name, int count) { return fmt::format("V (&{})[{}]", name, count); }

/// The parameter of the values of learnt vectors, or of their gradients, with a comma; nothing if there are none.
std::string learnt_parameter(const std::string& parameter, std::size_t learnt) {
  return learnt == 0 ? "" : parameter + ", ";
}

/// Means take an exchange between threads in a kernel, unlike on a CPU.
int cost_in_kernel(Operation operation) {
  constexpr int exchange = 1000;
  return operation == Operation::mean ? exchange : cost(operation);
}

/// What a kernel runs of a dense cell. If units read means, its backward pass keeps every mean of the forward pass, and
/// of roots the argument: kernels divide by a root without computing it.
struct Passes {
  std::vector<NodeId> kept;
  Program training, backward;

  explicit Passes(const DerivedCell& cell) : kept(cell.kept), training(cell.training), backward(cell.backward) {
    if (!cell.averages) return;
    const CustomCell& of = cell.cell;
    std::set<NodeId> chosen;
    for (const NodeId id : choose_kept(of.graph, of.outputs, cell.gradients, cost_in_kernel)) {
      chosen.insert(of.graph[id].operation == Operation::sqrt ? of.graph[id].of[0] : id);
    }
    kept.assign(chosen.begin(), chosen.end());
    std::vector<NodeId> results = of.outputs;
    results.insert(results.end(), kept.begin(), kept.end());
    training = compile(of.graph, results);
    backward = compile(of.graph, cell.gradients, kept);
  }
};

/// The functions of a dense cell, without what stores their results.
struct DenseBodies {
  Passes passes;
  Body forward, backward;

  explicit DenseBodies(const DerivedCell& cell)
      : passes(cell),
        forward(passes.training, cell.cell.states.size() + passes.kept.size(), style_of(cell)),
        backward(passes.backward, cell.gradients.size(), style_of(cell)) {}
};

std::string dense_functions(const DerivedCell& cell) {
  auto [passes, forward, backward] = DenseBodies(cell);
  const int gates = cell.cell.gates, states = static_cast<int>(cell.cell.states.size());
  const int kept = static_cast<int>(passes.kept.size()), saved = std::max(kept, 1);
  const std::size_t learnt = cell.cell.learnt.size();
  const auto vectors = static_cast<int>(learnt);
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
  const std::string head = cell.averages ? "Head& head, " : "";
  return function_text("forward", cell.averages,
                       head + fmt::format("{}, {}, {}, {}{}, {}", forward.input("wx", gates),
                                          forward.input("rh", gates), forward.input("prev", states),
                                          learnt_parameter(forward.input("learnt", vectors), learnt),
                                          array_text("next", states), array_text("save", saved)),
                       forward) +
         function_text(
             "backward", cell.averages,
             head + fmt::format(
                        "{}, {}, {}{}, {}{}, {}, {}", backward.input("save", saved), backward.input("prev", states),
                        learnt_parameter(backward.input("learnt", vectors), learnt), backward.input("dnext", states),
                        learnt_parameter(array_text("dlearnt", vectors), learnt), array_text("dwx", gates),
                        array_text("drh", gates), array_text("dprev", states)),
             backward);
}

std::string scan_functions(const DerivedCell& cell) {
  const int gates = cell.cell.gates;
  const std::size_t learnt = cell.cell.learnt.size();
  const auto vectors = static_cast<int>(learnt);
  Body affine(cell.forward, 2, style_of(cell));
  Body backward(cell.backward, static_cast<std::size_t>(gates) + learnt, style_of(cell));
  affine.store("a", 0);
  affine.store("b", 1);
  for (int g = 0; g < gates; ++g) backward.store(fmt::format("dwx[{}]", g), static_cast<std::size_t>(g));
  for (std::size_t k = 0; k < learnt; ++k) {
    backward.store(fmt::format("dlearnt[{}]", k), static_cast<std::size_t>(gates) + k);
  }
  return function_text("affine", false,
                       fmt::format("{}, {}V& a, V& b", affine.input("wx", gates),
                                   learnt_parameter(affine.input("learnt", vectors), learnt)),
                       affine) +
         function_text("affine_backward", false,
                       fmt::format("{}, {}{}, {}, {}{}", backward.input("wx", gates),
                                   learnt_parameter(backward.input("learnt", vectors), learnt), backward.scalar("da"),
                                   backward.scalar("db"), learnt_parameter(array_text("dlearnt", vectors), learnt),
                                   array_text("dwx", gates)),
                       backward);
}

}  // namespace

std::string cuda_text(const DerivedCell& cell, std::string_view name) {
  std::string text = cell.averages ? "#define PENSTOCK_MEANS\n" : "";
  text += fmt::format("struct {} {{\n  static constexpr int gates = {};\n  static constexpr int states = {};\n", name,
                      cell.cell.gates, cell.cell.states.size());
  if (!cell.cell.learnt.empty()) text += fmt::format("  static constexpr int learnt = {};\n", cell.cell.learnt.size());
  if (cell.cell.scan) {
    text += "  static constexpr bool splits_gain = false;\n  static constexpr bool scan = true;\n";
    return text + scan_functions(cell) + "};\n";
  }
  text += fmt::format("  static constexpr int saved = {};\n  static constexpr int phases = 1;\n",
                      std::max<std::size_t>(Passes(cell).kept.size(), 1));
  text += fmt::format("  static constexpr bool split_gradients = {};\n  static constexpr bool scan = false;\n",
                      cell.split_gradients);
  if (cell.averages) {
    const auto& [forward, backward, alive] = averages_of(cell);
    text += fmt::format("  static constexpr int forward_averages[] = {{{}}};\n", fmt::join(forward, ", "));
    text += fmt::format("  static constexpr int backward_averages[] = {{{}}};\n",
                        backward.empty() ? "0" : fmt::format("{}", fmt::join(backward, ", ")));
  }
  return text + dense_functions(cell) + "};\n";
}

Averages averages_of(const DerivedCell& cell) {
  if (!cell.averages) return {};
  const DenseBodies bodies(cell);
  return {bodies.forward.exchanged(), bodies.backward.exchanged(),
          std::max(bodies.forward.alive(), bodies.backward.alive())};
}

}  // namespace penstock::custom
