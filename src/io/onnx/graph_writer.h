#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "io/onnx/onnx_graph.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"

namespace penstock::io {

/// Writes the forward pass of a graph in f32 as nodes of ONNX: one function an op, of what its definition says.
/// Activations are [B, T, width], states [B, width].
class GraphWriter {
 public:
  /// `parameters`: the flat store that values of Home::values lie in.
  GraphWriter(OnnxGraph& onnx, const graph::Graph& graph, std::span<const float> parameters);

  /// `input`: what Home::tokens or Home::features is called; `state`: [B, S], empty for a graph without one.
  void write(const std::string& input, const std::string& state);

  /// What a value that was made is called.
  const std::string& name_of(graph::ValueId id) const { return names_[static_cast<std::size_t>(id.index)]; }
  /// [B, S]
  std::string next_state();
  /// S
  Index state_size() const { return state_size_; }

 private:
  void split_state(const std::string& state);
  void write_node(const graph::Node& node);

  // One of these for every kind of op.
  void write(const ops::Embedding& shape);
  void write(const ops::Linear& shape);
  void write(const ops::ResidualNorm& shape);
  void write(const ops::ResidualSum& shape);
  void write(const ops::CausalConvolution& shape);
  void write(const ops::Recurrence& shape);
  void write(const ops::SiluGate& shape);
  void write(const ops::ClearPadding& shape);
  void write(const ops::ReadChanges& op);
  void write(const ops::AddLastValues& op);

  // Operands of the node that is being written, by their place.
  bool reads(int i) const;
  const std::string& read(int i) const;
  std::span<const float> parameter(int i) const;
  /// A parameter as it is, under its name.
  std::string tensor(int i, const std::vector<Index>& shape);
  void made(int i, const std::string& name);

  OnnxGraph& onnx_;
  const graph::Graph& graph_;
  std::span<const float> parameters_;
  std::vector<std::string> names_;  // of each value
  const graph::Node* node_ = nullptr;
  std::vector<graph::ValueId> carried_;   // states that come in, in their order
  std::vector<std::string> next_states_;  // of these
  Index state_size_ = 0;
};

}  // namespace penstock::io
