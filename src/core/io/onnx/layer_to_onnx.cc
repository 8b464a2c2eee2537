#include "io/onnx/layer_to_onnx.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "custom/cell.h"
#include "custom/expression_graph.h"
#include "io/onnx/symbol.h"
#include "plan/cell_table.h"

namespace penstock::io {

namespace written_cells {

#include "cells/gate_functions.h"

#include "cells/list.h"

}  // namespace written_cells

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

/// Writes what the roots of a graph need as nodes of ONNX in `body`, and returns the names of the roots. `leaf` returns
/// the symbol of a leaf that is not a constant. `mean` writes a mean over the units of each head. A root of the size of
/// constants, learnt vectors and means is repeated to the size of `like`.
std::vector<std::string> write_expressions(OnnxGraph& body, const custom::ExpressionGraph& graph,
                                           const std::vector<custom::NodeId>& roots, const std::string& like,
                                           const std::function<Symbol(custom::Operation, int)>& leaf,
                                           const std::function<Symbol(const Symbol&)>& mean = {}) {
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

using Names = std::vector<std::string>;

/// An operator of ONNX that is one of our cells.
struct StandardOperator {
  std::string_view cell;
  const char* op;
  std::vector<Index> gates;  // ours, in the operator's order
  OnnxAttributes attributes;
};

const StandardOperator* standard_operator(std::string_view cell) {
  static const std::vector<StandardOperator> all = {
      {"elman", "RNN", {0}, {{"activations", std::vector<std::string>{"Tanh"}}}},
      {"elman-relu", "RNN", {0}, {{"activations", std::vector<std::string>{"Relu"}}}},
      {"lstm", "LSTM", {0, 3, 1, 2}, {}},                       // i, o, f, c
      {"gru", "GRU", {1, 0, 2}, {{"linear_before_reset", 1}}},  // z, r, h
      {"gru-before", "GRU", {1, 0, 2}, {{"linear_before_reset", 0}}},
  };
  for (const StandardOperator& each : all) {
    if (each.cell == cell) return &each;
  }
  return nullptr;
}

/// Rows of a matrix or values of a bias, gate by gate in another order; zeros where there are none.
template <class T>
std::vector<T> in_order(std::span<const T> values, const std::vector<Index>& gates, Index per_gate) {
  std::vector<T> result;
  for (const Index gate : gates) {
    if (values.empty()) {
      result.insert(result.end(), static_cast<std::size_t>(per_gate), T(0));
    } else {
      const auto part = values.subspan(static_cast<std::size_t>(gate * per_gate), static_cast<std::size_t>(per_gate));
      result.insert(result.end(), part.begin(), part.end());
    }
  }
  return result;
}

/// A layer that is being written.
class Layer {
 public:
  Layer(OnnxGraph& graph, const ops::Recurrence& shape, const OnnxRecurrentWeights& weights, const std::string& name)
      : graph_(graph), shape_(shape), weights_(weights), name_(name), cell_(plan::cell_traits(shape.cell)) {}

  OnnxRecurrentValues write(const std::string& x, const Names& states) {
    const StandardOperator* const standard = shape_.heads == 1 ? standard_operator(shape_.cell) : nullptr;
    if (standard != nullptr) return write_standard(*standard, x, states);
    const Names wx = of_input(x);
    if (cell_.custom != nullptr)
      return cell_.info.scan ? write_custom_scan(wx, states) : write_custom_dense(wx, states);
    std::optional<OnnxRecurrentValues> result;
#define PENSTOCK_WRITE_DENSE(Cell) \
  if (shape_.cell == written_cells::Cell::name) result = write_dense<written_cells::Cell>(wx, states);
#define PENSTOCK_WRITE_SCAN(Cell) \
  if (shape_.cell == written_cells::Cell::name) result = write_scan<written_cells::Cell>(wx, states);
    PENSTOCK_DENSE_CELLS(PENSTOCK_WRITE_DENSE)
    PENSTOCK_SCAN_CELLS(PENSTOCK_WRITE_SCAN)
#undef PENSTOCK_WRITE_DENSE
#undef PENSTOCK_WRITE_SCAN
    return result.value();
  }

 private:
  /// The parts of the last axis, all of one size.
  static Names parts(OnnxGraph& graph, const std::string& x, int count) {
    if (count == 1) return {x};
    return graph.node(count, "Split", {x}, {{"axis", -1}});
  }

  OnnxRecurrentValues write_standard(const StandardOperator& standard, const std::string& x, const Names& states) {
    const Index hidden = shape_.hidden, all = cell_.info.gates * hidden;
    std::vector<float> bias = in_order(weights_.bias_ih, standard.gates, hidden);
    const std::vector<float> recurrent_bias = in_order(weights_.bias_hh, standard.gates, hidden);
    bias.insert(bias.end(), recurrent_bias.begin(), recurrent_bias.end());
    // The operators take one axis more, of directions, and steps before rows.
    const std::string first = graph_.integers({0}), second = graph_.integers({1});
    Names reads = {graph_.node("Transpose", {x}, {{"perm", std::vector<Index>{1, 0, 2}}}), "", "",
                   graph_.floats("bias", {1, 2 * all}, bias), ""};
    for (const std::string& each : states) reads.push_back(graph_.node("Unsqueeze", {each, first}));
    const std::string op = add_matrices(standard, reads);
    OnnxAttributes attributes = standard.attributes;
    attributes.emplace_back("hidden_size", hidden);
    attributes.emplace_back("direction", shape_.reverse ? "reverse" : "forward");
    const Names made = graph_.node(1 + cell_.states(), op, reads, attributes);
    const std::string y =
        graph_.node("Transpose", {graph_.node("Squeeze", {made[0], second})}, {{"perm", std::vector<Index>{1, 0, 2}}});
    Names next;
    for (std::size_t i = 1; i < made.size(); ++i) next.push_back(graph_.node("Squeeze", {made[i], first}));
    return {y, next};
  }

  /// Sets the reads of an operator that are its matrices. Returns its name.
  std::string add_matrices(const StandardOperator& standard, Names& reads) {
    const Index hidden = shape_.hidden, all = cell_.info.gates * hidden;
    const bool dynamic = shape_.int8 && std::string_view(standard.op) == "LSTM";
    constexpr std::size_t first_scale = 8;   // in the operator's order
    if (dynamic) reads.resize(first_scale);  // without peepholes
    for (std::size_t i = 0; i < 2; ++i) {
      const OnnxMatrix& of = i == 0 ? weights_.ih : weights_.hh;
      const char* const name = i == 0 ? "weight_ih" : "weight_hh";
      const Index width = i == 0 ? shape_.input : hidden;
      std::string& read = reads[i + 1];
      if (!shape_.int8) {
        read = graph_.floats(name, {1, all, width}, in_order(of.floats, standard.gates, hidden * width));
        continue;
      }
      const auto rows = in_order(std::span<const std::int8_t>(of.int8), standard.gates, hidden * width);
      const auto scales = in_order(std::span<const float>(of.scales), standard.gates, hidden);
      if (!dynamic) {
        read = add_rounded(graph_, name, {1, all, width}, rows, {1, all, 1}, scales);
        continue;
      }
      const std::vector<std::int8_t> zeros(static_cast<std::size_t>(all));
      read = graph_.bytes(name, {1, width, all}, transposed(std::span<const std::int8_t>(rows), all, width));
      reads.push_back(graph_.floats(name + std::string(".scale"), {1, all}, scales));
      reads.push_back(graph_.bytes(name + std::string(".zero"), {1, all}, zeros));
    }
    return dynamic ? fmt::format("{}.DynamicQuantizeLSTM", kOnnxRuntime) : standard.op;
  }

  /// W x + bias_ih of all steps, [B, T, H] of each gate.
  Names of_input(const std::string& x) {
    const Index all = cell_.info.gates * shape_.hidden;
    std::string wx = add_product(graph_, x, "weight_ih", weights_.ih, all, shape_.input);
    if (!weights_.bias_ih.empty()) {
      wx = graph_.node("Add",
                       {wx, graph_.floats("bias_ih", {all}, weights_.bias_ih.first(static_cast<std::size_t>(all)))});
    }
    return parts(graph_, wx, cell_.gates());
  }

  /// h_t = a_t h_{t-1} + b_t
  template <class Cell>
  OnnxRecurrentValues write_scan(const Names& wx, const Names& states) {
    Symbol inputs[Cell::gates], a, b;
    for (int gate = 0; gate < Cell::gates; ++gate) inputs[gate] = {graph_, wx[static_cast<std::size_t>(gate)]};
    Cell::affine(inputs, a, b);
    return affine_loop(a.name(), b.name(), states);
  }

  OnnxRecurrentValues affine_loop(const std::string& a, const std::string& b, const Names& states) {
    return loop({a, b}, states, [](OnnxGraph& body, const Names& terms, const Names& before) {
      return Names{MulAdd(Symbol(body, terms[0]), Symbol(body, before[0]), Symbol(body, terms[1])).name()};
    });
  }

  template <class Cell>
  OnnxRecurrentValues write_dense(const Names& wx, const Names& states) {
    return loop(wx, states, [&](OnnxGraph& body, const Names& of_input, const Names& of_before) {
      Symbol inputs[Cell::gates], recurrent[Cell::gates], before[Cell::states], next[Cell::states], save[Cell::saved];
      for (int gate = 0; gate < Cell::gates; ++gate) inputs[gate] = {body, of_input[static_cast<std::size_t>(gate)]};
      for (int i = 0; i < Cell::states; ++i) before[i] = {body, of_before[static_cast<std::size_t>(i)]};
      if constexpr (Cell::phases == 1) {
        of_state(body, of_before[0], 0, Cell::gates, recurrent);
        Cell::forward(inputs, recurrent, before, next, save);
      } else {
        Symbol operand;
        of_state(body, of_before[0], 0, Cell::first_gates, recurrent);
        Cell::forward_first(inputs, recurrent, before, operand, save);
        of_state(body, operand.name(), Cell::first_gates, Cell::gates, recurrent);
        Cell::forward_second(inputs, recurrent, before, next, save);
      }
      Names names;
      for (const Symbol& each : next) names.push_back(each.name());
      return names;
    });
  }

  OnnxRecurrentValues write_custom_scan(const Names& wx, const Names& states) {
    const custom::CustomCell& cell = cell_.custom->cell;
    const auto leaf = [&](custom::Operation operation, int i) {
      return operation == custom::Operation::input ? Symbol(graph_, wx[static_cast<std::size_t>(i)])
                                                   : learnt(graph_, i);
    };
    const Names terms = write_expressions(graph_, cell.graph, cell.outputs, wx[0], leaf);
    return affine_loop(terms[0], terms[1], states);
  }

  OnnxRecurrentValues write_custom_dense(const Names& wx, const Names& states) {
    const custom::CustomCell& cell = cell_.custom->cell;
    return loop(wx, states, [&](OnnxGraph& body, const Names& of_input, const Names& before) {
      std::vector<Symbol> recurrent(static_cast<std::size_t>(cell.gates));
      of_state(body, before[0], 0, cell.gates, recurrent.data());
      const auto leaf = [&](custom::Operation operation, int index) {
        const auto i = static_cast<std::size_t>(index);
        if (operation == custom::Operation::input) return Symbol(body, of_input[i]);
        if (operation == custom::Operation::recurrent) return recurrent[i];
        if (operation == custom::Operation::state) return Symbol(body, before[i]);
        return learnt(body, index);
      };
      const auto mean = [&](const Symbol& x) { return of_units(body, x); };
      return write_expressions(body, cell.graph, cell.outputs, before[0], leaf, mean);
    });
  }

  /// The mean of x [B, H] over the units of each head, as large as x; of one head [B, 1].
  Symbol of_units(OnnxGraph& body, const Symbol& x) const {
    const OnnxAttributes last = {{"axes", std::vector<Index>{-1}}, {"keepdims", 1}};
    if (shape_.heads == 1) return {body, body.node("ReduceMean", {x.name()}, last)};
    const Index D = shape_.hidden / shape_.heads;
    const std::string by_head = body.node("Reshape", {x.name(), body.integers({-1, shape_.heads, D})});
    const std::string wide =
        body.node("Expand", {body.node("ReduceMean", {by_head}, last), body.integers({1, shape_.heads, D})});
    return {body, body.node("Reshape", {wide, body.integers({-1, shape_.hidden})})};
  }

  /// A learnt vector [H], which stands behind the gates of bias_ih.
  Symbol learnt(OnnxGraph& body, int index) const {
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    const std::size_t first = (static_cast<std::size_t>(cell_.gates()) + static_cast<std::size_t>(index)) * hidden;
    return {body,
            body.floats(fmt::format("learnt{}", index), {shape_.hidden}, weights_.bias_ih.subspan(first, hidden))};
  }

  /// R h + bias_hh, [B, H] of each gate from `begin` to `end`.
  void of_state(OnnxGraph& body, const std::string& h, int begin, int end, Symbol* recurrent) const {
    const Index D = shape_.hidden / shape_.heads, heads = shape_.heads, gates = end - begin;
    // From R [heads, G * D, columns] [heads, columns, gates * D], where columns are D of weights and 1 of scales.
    const auto of_gates = [&]<class T>(std::span<const T> values, Index columns) {
      std::vector<T> matrices;
      const auto size = static_cast<std::size_t>(gates * D * columns);
      for (Index head = 0; head < heads; ++head) {
        const auto first = static_cast<std::size_t>((head * cell_.info.gates + begin) * D * columns);
        const std::vector<T> matrix = transposed(values.subspan(first, size), gates * D, columns);
        matrices.insert(matrices.end(), matrix.begin(), matrix.end());
      }
      return matrices;
    };
    const std::string suffix = begin == 0 ? "" : ".second", name = "weight_hh" + suffix;
    std::vector<Index> extents = {heads, D, gates * D}, of_scales = {heads, 1, gates * D};
    if (heads == 1) {
      extents.erase(extents.begin());
      of_scales.erase(of_scales.begin());
    }
    const std::string weight =
        shape_.int8 ? add_rounded(body, name, extents, of_gates(std::span<const std::int8_t>(weights_.hh.int8), D),
                                  of_scales, of_gates(std::span<const float>(weights_.hh.scales), 1))
                    : body.floats(name, extents, of_gates(weights_.hh.floats, D));
    std::string rh = heads == 1 ? body.node("MatMul", {h, weight}) : of_heads(body, h, weight, gates);
    if (!weights_.bias_hh.empty()) {
      const auto bias = weights_.bias_hh.subspan(static_cast<std::size_t>(begin * shape_.hidden),
                                                 static_cast<std::size_t>(gates * shape_.hidden));
      rh = body.node("Add", {rh, body.floats("bias_hh" + suffix, {gates * shape_.hidden}, bias)});
    }
    const Names each = parts(body, rh, static_cast<int>(gates));
    for (int gate = begin; gate < end; ++gate) recurrent[gate] = {body, each[static_cast<std::size_t>(gate - begin)]};
  }

  /// h [B, H] and matrices [heads, D, gates * D] -> [B, gates * H]
  std::string of_heads(OnnxGraph& body, const std::string& h, const std::string& weight, Index gates) const {
    const Index D = shape_.hidden / shape_.heads;
    const auto swapped = [&](const std::string& x) {
      return body.node("Transpose", {x}, {{"perm", std::vector<Index>{1, 0, 2}}});
    };
    // [B, heads, D] -> [heads, B, D] -> [heads, B, gates * D] -> [B, heads, gates * D]
    const std::string by_head = swapped(body.node("Reshape", {h, body.integers({0, shape_.heads, D})}));
    const std::string product = swapped(body.node("MatMul", {by_head, weight}));
    // [B, heads, gates, D] -> [B, gates, heads, D]
    const std::string shaped = body.node("Reshape", {product, body.integers({0, shape_.heads, gates, D})});
    const std::string by_gate = body.node("Transpose", {shaped}, {{"perm", std::vector<Index>{0, 2, 1, 3}}});
    return body.node("Reshape", {by_gate, body.integers({0, gates * shape_.hidden})});
  }

  using Step = std::function<Names(OnnxGraph&, const Names& of_step, const Names& states)>;

  /// A loop over the steps of `sequences` [B, T, H]: `step` says how states follow from those before, of which the
  /// first is what comes out.
  OnnxRecurrentValues loop(const Names& sequences, const Names& states, const Step& step) {
    OnnxGraph body(name_ + "/step/");
    Names before, of_step;
    const auto row = [&](const std::string& name) {
      return OnnxTensor{name_ + "/step/" + name, "float", {"batch", std::to_string(shape_.hidden)}, ""};
    };
    const auto read = [&](Names& names, const std::string& name) {
      body.input(row(name));
      names.push_back(row(name).name);
    };
    for (std::size_t i = 0; i < states.size(); ++i) read(before, fmt::format("state{}", i));
    for (std::size_t i = 0; i < sequences.size(); ++i) read(of_step, fmt::format("x{}", i));
    Names next = step(body, of_step, before);
    next.push_back(next.front());  // what comes out; every output of a body has a name of its own
    for (std::size_t i = 0; i < next.size(); ++i) body.output(row(fmt::format("next{}", i)), next[i]);

    Names reads = states;
    reads.insert(reads.end(), sequences.begin(), sequences.end());
    const auto count = static_cast<Index>(sequences.size());
    const Names made =
        graph_.node(cell_.states() + 1, "Scan", reads,
                    {OnnxAttribute::graph("body", body.encoded("step")),
                     {"num_scan_inputs", count},
                     {"scan_input_axes", std::vector<Index>(sequences.size(), 1)},
                     {"scan_output_axes", std::vector<Index>{1}},
                     {"scan_input_directions", std::vector<Index>(sequences.size(), shape_.reverse ? 1 : 0)},
                     {"scan_output_directions", std::vector<Index>{shape_.reverse ? 1 : 0}}});
    return {made.back(), {made.begin(), made.end() - 1}};
  }

  OnnxGraph& graph_;
  const ops::Recurrence& shape_;
  const OnnxRecurrentWeights& weights_;
  const std::string& name_;
  const plan::CellTraits& cell_;
};

}  // namespace

OnnxRecurrentValues add_recurrence(OnnxGraph& graph, const ops::Recurrence& shape, const OnnxRecurrentWeights& weights,
                                   const std::string& x, const std::vector<std::string>& states,
                                   const std::string& name) {
  return Layer(graph, shape, weights, name).write(x, states);
}

}  // namespace penstock::io
