#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "nn/model/parameters.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"

namespace penstock::nn {

using graph::ValueId;

/// Writes a model down as a graph of ops, layer by layer: each layer adds its parameters to a layout, its forward nodes
/// to a graph, and says how its backward nodes follow from the gradient of what it makes.
class GraphBuilder {
 public:
  explicit GraphBuilder(const ops::Target& target);

  /// The graph and the layout of all its parameters, complete.
  graph::Graph take_graph();
  const ParameterLayout& layout() const { return layout_; }
  ParameterLayout& layout() { return layout_; }
  const ops::Target& target() const { return target_; }
  /// Values of one row's state, of all layers so far. A batch's state is [B, ...] layer after layer.
  Index state_size() const { return state_size_; }

  // Layers. Fresh weights are such that the variance of normalised rows is kept.
  ValueId embedding(const std::string& name, Index vocabulary, Index width);
  /// y = x W^T + b; `scale` of fresh weights, and fresh biases. `x_has_gradient`: false for inputs of the model.
  ValueId linear(const std::string& name, ValueId x, Index outputs, double scale = 1.0, bool x_has_gradient = true,
                 graph::Home home = graph::Home::workspace, const Initial& fresh_bias = {});
  struct Sum {
    ValueId normal, sum;
  };
  /// The norm of x, or of x + dropout(branch), and that sum.
  Sum residual_norm(const std::string& name, ValueId x, ValueId branch = {}, const ops::Dropout& dropout = {});
  /// x + dropout(branch), without a norm.
  ValueId residual_sum(const std::string& name, ValueId x, ValueId branch, const ops::Dropout& dropout);
  ValueId causal_convolution(const std::string& name, ValueId x, Index taps);
  ValueId recurrence(const std::string& name, ValueId x, const ops::Recurrence& shape);
  ValueId silu_gate(const std::string& name, ValueId gate_value);
  ValueId clear_padding(ValueId x);
  ValueId read_changes(const ops::Changes& changes, ValueId features);
  /// x in the type of parameters and states, which it may have already.
  ValueId as_master(ValueId x, graph::Home home);
  /// Adds x to outputs, both [B, T, width] and masters.
  void add(ValueId x, ValueId outputs);
  void add_last_values(const ops::Changes& changes, ValueId features, ValueId outputs);

  // Layers that no backward pass reaches: their parameters are fitted in closed form, or drawn, and stay as they are.
  // They compute in the type of parameters, in full precision, whatever the target says of the rest.
  ValueId fixed_linear(const std::string& name, ValueId x, Index outputs, graph::Home home = graph::Home::workspace);
  ValueId fixed_convolution(const std::string& name, ValueId x, Index taps);
  ValueId fixed_silu_gate(const std::string& name, ValueId gate_value, graph::Home home = graph::Home::workspace);
  ValueId fixed_norm(const std::string& name, ValueId x);
  /// A layer of a scan cell, as wide as x.
  ValueId fixed_scan(const std::string& name, ValueId x, const std::string& cell);
  /// Adds to outputs [B, T, horizon, targets], which are masters, a linear forecast from the last `lags` rows
  /// (forecast/linear/autoregression.h), and effects of what is known of later rows (forecast/linear/covariates.h).
  void add_autoregression(Index lags, bool known_effects, ValueId features, ValueId outputs);

  Index width_of(ValueId id) const { return graph_.value(id).width; }
  DType type_of(ValueId id) const { return graph_.value(id).dtype; }
  /// An external value.
  ValueId external(const std::string& name, graph::Home home, graph::Extent extent, Index width, DType dtype,
                   Index offset = 0);
  ValueId activation(const std::string& name, Index width);
  /// Adds a node as it is.
  void node(ops::Op op, std::vector<ValueId> reads, std::vector<ValueId> writes, graph::Phase phase,
            std::vector<std::pair<int, int>> in_place = {});

  /// The backward nodes of all layers, from the gradient of one value.
  void backward(ValueId value, ValueId gradient);
  /// The gradient of a value, once backward() has been called; none where nobody needs it.
  ValueId gradient(ValueId id) const {
    const auto i = static_cast<std::size_t>(id.index);
    return i < gradients_.size() ? gradients_[i] : ValueId{};
  }
  /// Outputs of recurrences, for those who watch them.
  const std::vector<ValueId>& recurrent_outputs() const { return recurrent_outputs_; }
  /// All weights in the type of activations, where that is not their own; else none.
  ValueId casts() const { return casts_; }

 private:
  /// A parameter as it is read by products (in the type of activations) and by everything else, and its gradient.
  struct Parameter {
    ValueId master, cast, gradient;
  };
  Parameter parameter(const std::string& name, std::vector<Index> shape, bool decay, Initial initial);
  /// A parameter of a fixed layer, as it is stored.
  ValueId fixed_parameter(const std::string& name, std::vector<Index> shape);
  /// What a fixed layer makes.
  ValueId fixed_value(const std::string& name, Index width, graph::Home home = graph::Home::workspace);
  struct State {
    ValueId in, out;
  };
  /// Laid out [states, B, width / states].
  State state(const std::string& name, Index width, Index states = 1);
  ValueId panels(const std::string& name, const ops::Recurrence& shape, ops::Panels which,
                 const std::vector<ValueId>& weights);
  /// The same by an op of its own, for a target that need not be that of the graph.
  ValueId panels(const std::string& name, const ops::Target& target, ops::Panels which, ops::Op packing,
                 const std::vector<ValueId>& weights);
  ValueId& gradient_of(ValueId id);
  /// Of a value that a residual connection may read as well, which then has said its gradient already.
  void add_gradient(ValueId of, ValueId gradient);
  /// For the node that makes the gradient of a value and can sum its columns beside: where the sums are wanted, if they
  /// are, and nobody else makes them then.
  ValueId take_column_sums(ValueId of);
  void on_backward(std::function<void()> nodes) { backward_.push_back(std::move(nodes)); }

  ops::Target target_;
  graph::Graph graph_;
  ParameterLayout layout_;
  Index state_size_ = 0;
  ValueId casts_;
  std::vector<std::function<void()>> backward_;
  std::vector<ValueId> gradients_;                        // of each value
  std::vector<std::pair<ValueId, ValueId>> column_sums_;  // of the gradient of the first wanted in the second
  std::vector<ValueId> recurrent_outputs_;
};

}  // namespace penstock::nn
