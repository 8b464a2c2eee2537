#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"

/// A model is a graph of ops: values, and the nodes that make some of them from others.
namespace penstock::graph {

/// Leading extent of a value.
enum class Extent {
  positions,  ///< [B, T, width]
  rows,       ///< [B, width]
  fixed,      ///< [width]
};

/// Source of a value's memory. The caller gives all but the first two to a Workspace.
enum class Home {
  workspace,      ///< Planned by lifetime.
  derived,        ///< Made of the weights, once for all who use them (graph/weights.h).
  values,         ///< The flat store of parameters.
  gradients,      ///< A store of the same layout.
  first_moments,  ///< State of an optimiser, in the same layout.
  second_moments,
  averages,        ///< The moving average of the parameters.
  tokens,          ///< i32 [B, T]
  features,        ///< [B, T, I]
  labels,          ///< i32 [B, T]
  targets,         ///< [B, T, O]
  target_weights,  ///< [B, T, O]
  outputs,         ///< [B, T, O]
  doutputs,        ///< [B, T, O], the gradient of the loss
  state_in,        ///< [B, width] of each layer that has a state, layer after layer
  state_out,       ///< Next states; may be state_in in programs without a backward pass
  status,          ///< Result of a training step (ops/training/training.h)
  draws,           ///< i64 [2, B]: keys and counters of rows that draw tokens (ops/pointwise/sample.h)
  history,         ///< i32 [B, n]: the tokens drawn last
  given,           ///< Each such value by itself, wherever it lies.
  count_,
};
constexpr int kHomes = static_cast<int>(Home::count_);

/// A value of a graph, by number; -1: none.
struct ValueId {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const ValueId&) const = default;
};

struct Value {
  std::string name;
  Extent extent = Extent::positions;
  Index width = 0;  ///< Values for each position, row, or in all; -1: the op that writes it knows how many bytes
  DType dtype = DType::f32;
  Home home = Home::workspace;
  Index offset = 0;      ///< Elements from the start of its home: of rows, of one row
  std::string key = {};  ///< Home::derived: what it is, the same wherever the same is derived
  ValueId part_of = {};  ///< Another value, in whose memory this one lies from element `offset` on; its home counts
  Index states = 1;      ///< Extent::rows: it lies as [states, B, width / states]

  Index count(const ops::Target& target) const;
};

/// Phase in which a node runs.
enum class Phase {
  weights,  ///< Only after weights have changed.
  forward,
  backward,
  update,
};

struct Node {
  ops::Op op;
  std::vector<ValueId> reads, writes;
  Phase phase = Phase::forward;
  /// (written, read), by the numbers of operands: the op may write the one where the other lies.
  std::vector<std::pair<int, int>> in_place;
};

class Graph {
 public:
  ValueId add(Value value);
  void add(Node node);
  /// Says how long a value is whose length was not known when it was added.
  void set_width(ValueId id, Index width) { values_[static_cast<std::size_t>(id.index)].width = width; }

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id.index)]; }

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
};

}  // namespace penstock::graph
