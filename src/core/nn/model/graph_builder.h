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

/// The builder of model graphs: forward nodes, parameters, and the backward nodes that follow from them.
namespace penstock::nn {

using graph::ValueId;

/// Builds the graph of a model, layer by layer. Each layer adds its parameters to a layout, its forward nodes to a
/// graph, and a function that adds its backward nodes, given the gradient of its output.
class GraphBuilder {
 public:
  explicit GraphBuilder(const ops::Target& target);

  /// take_graph() returns the complete graph; layout() is the layout of all its parameters.
  graph::Graph take_graph();
  const ParameterLayout& layout() const { return layout_; }
  ParameterLayout& layout() { return layout_; }
  const ops::Target& target() const { return target_; }
  /// Returns the number of values in one row's state, over all layers so far. The state of a batch is a block [B, ...]
  /// for each layer.
  Index state_size() const { return state_size_; }

  /// Names the layers whose matrices are int8. Throws Error(unsupported) for targets on which those do not run.
  void set_int8(const std::vector<std::string>& layers);
  /// Returns the names of the layers so far whose matrices may be int8.
  const std::vector<std::string>& int8_layers() const { return int8_layers_; }

  // Layers. Initial weights keep the variance of normalised rows.
  ValueId embedding(const std::string& name, Index vocabulary, Index width);
  /// y = x W^T + b. `scale`: factor of the initial weights. `fresh_bias`: initial biases. `x_has_gradient`: false for
  /// inputs of the model.
  ValueId linear(const std::string& name, ValueId x, Index outputs, double scale = 1.0, bool x_has_gradient = true,
                 graph::Home home = graph::Home::workspace, const Initial& fresh_bias = {});
  struct Sum {
    ValueId normal, sum;
  };
  /// Returns the norm of x, or of x + dropout(branch), and that sum.
  Sum residual_norm(const std::string& name, ValueId x, ValueId branch = {}, const ops::Dropout& dropout = {});
  /// Returns x + dropout(branch), without a norm.
  ValueId residual_sum(const std::string& name, ValueId x, ValueId branch, const ops::Dropout& dropout);
  ValueId causal_convolution(const std::string& name, ValueId x, Index taps);
  ValueId recurrence(const std::string& name, ValueId x, const ops::Recurrence& form);
  ValueId silu_gate(const std::string& name, ValueId gate_value);
  ValueId clear_padding(ValueId x);
  ValueId read_changes(const ops::Changes& changes, ValueId features);
  /// Returns x in the type of parameters and states; x itself if it has that type.
  ValueId as_master(ValueId x, graph::Home home);
  /// Adds x to `outputs`; both are [B, T, width] in the type of parameters.
  void add(ValueId x, ValueId outputs);
  void add_last_values(const ops::Changes& changes, ValueId features, ValueId outputs);

  // Fixed layers, which have no backward pass: their parameters are fitted in closed form or drawn, and not trained.
  // They compute in the type of parameters and in full precision, whatever the target.
  ValueId fixed_linear(const std::string& name, ValueId x, Index outputs, graph::Home home = graph::Home::workspace,
                       bool may_be_int8 = false);
  ValueId fixed_convolution(const std::string& name, ValueId x, Index taps);
  ValueId fixed_silu_gate(const std::string& name, ValueId gate_value, graph::Home home = graph::Home::workspace);
  ValueId fixed_norm(const std::string& name, ValueId x);
  /// A layer of a scan cell with the width of x.
  ValueId fixed_scan(const std::string& name, ValueId x, const std::string& cell);

  Index width_of(ValueId id) const { return graph_.value(id).width; }
  DType type_of(ValueId id) const { return graph_.value(id).dtype; }
  /// Adds an external value.
  ValueId external(const std::string& name, graph::Home home, graph::Extent extent, Index width, DType dtype,
                   Index offset = 0);
  /// Adds the numeric inputs of the model [B, T, inputs].
  ValueId features(Index inputs);
  ValueId activation(const std::string& name, Index width);
  /// Adds a node without a backward pass.
  void node(ops::Op op, std::vector<ValueId> reads, std::vector<ValueId> writes, graph::Phase phase,
            std::vector<std::pair<int, int>> in_place = {});

  /// Adds the backward nodes of all layers, given the gradient of one value.
  void backward(ValueId value, ValueId gradient);
  /// Returns the gradient of a value after backward(); none if nothing needs it.
  ValueId gradient(ValueId id) const {
    const auto i = static_cast<std::size_t>(id.index);
    return i < gradients_.size() ? gradients_[i] : ValueId{};
  }
  /// Returns the outputs of all recurrences, for statistics.
  const std::vector<ValueId>& recurrent_outputs() const { return recurrent_outputs_; }
  /// Returns all weights cast to the type of activations; none if they have that type.
  ValueId casts() const { return casts_; }

 private:
  /// A parameter: `cast`, in the type of activations, for products; `master` for everything else; and its gradient.
  struct Parameter {
    ValueId master, cast, gradient;
  };
  Parameter parameter(const std::string& name, std::vector<Index> shape, bool decay, Initial initial);
  /// Returns whether the matrices of a layer, whose rows have so many values at most, are int8.
  bool is_int8(const std::string& layer, Index columns);
  /// A matrix of int8, as rows or as panels of ops::pack_int8(), and the scale of each of its rows. Without extents
  /// there is none.
  struct Int8Parameter {
    ValueId values, scales;
  };
  Int8Parameter int8_parameter(const std::string& name, std::vector<Index> shape, bool panels = false);
  /// Adds a parameter of a fixed layer.
  ValueId fixed_parameter(const std::string& name, std::vector<Index> shape);
  /// Adds an output of a fixed layer.
  ValueId fixed_value(const std::string& name, Index width, graph::Home home = graph::Home::workspace);
  struct State {
    ValueId in, out;
  };
  /// Adds a state, laid out [states, B, width / states].
  State state(const std::string& name, Index width, Index states = 1);
  ValueId panels(const std::string& name, const ops::Recurrence& shape, ops::Panels which,
                 const std::vector<ValueId>& weights);
  /// Adds panels that `packing` packs for a target, which may differ from that of the graph.
  ValueId panels(const std::string& name, const ops::Target& target, ops::Panels which, ops::Op packing,
                 const std::vector<ValueId>& weights);
  ValueId& gradient_of(ValueId id);
  /// Adds to the gradient of a value that a residual connection may read too; it then has a gradient already.
  void add_gradient(ValueId of, ValueId gradient);
  /// Returns where the column sums of the gradient of `of` are wanted; none if they are not. The node that computes the
  /// gradient calls this to compute the sums as well; no other node computes them then.
  ValueId take_column_sums(ValueId of);
  void on_backward(std::function<void()> nodes) { backward_.push_back(std::move(nodes)); }

  ops::Target target_;
  graph::Graph graph_;
  ParameterLayout layout_;
  Index state_size_ = 0;
  ValueId casts_;
  std::vector<std::function<void()>> backward_;
  std::vector<ValueId> gradients_;                        // [values]
  std::vector<std::pair<ValueId, ValueId>> column_sums_;  // gradient's value, destination of its column sums
  std::vector<ValueId> recurrent_outputs_;
  std::vector<std::string> int8_, int8_layers_;  // those that are, those that may be
};

}  // namespace penstock::nn
