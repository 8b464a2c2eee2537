#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "io/onnx/int8_to_onnx.h"
#include "io/onnx/onnx_graph.h"
#include "nn/model/parameters.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"

/// Export of a model graph as nodes of ONNX.
namespace penstock::io {

/// Writes the forward pass of a graph in f32 as nodes of ONNX, with one function for each kind of op. Activations are
/// [B, T, width], states [B, width].
class GraphWriter {
 public:
  /// `parameters`: the flat array of the values of Home::values. `int8`: the parameters again if some are int8.
  GraphWriter(OnnxGraph& onnx, const graph::Graph& graph, std::span<const float> parameters,
              const nn::Parameters<float>* int8 = nullptr);

  /// Writes all nodes. `input`: name of Home::tokens or Home::features; `state`: name of the state [B, S], empty for a
  /// graph without one.
  void write(const std::string& input, const std::string& state);

  /// Returns the name of a value that was written.
  const std::string& name_of(graph::ValueId id) const { return names_[static_cast<std::size_t>(id.index)]; }
  /// Returns the name of the next state [B, S].
  std::string next_state();
  /// Returns S.
  Index state_size() const { return state_size_; }

 private:
  void split_state(const std::string& state);
  void write_node(const graph::Node& node);

  // One for each kind of op.
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

  // Operands of the current node.
  const std::string& read(int i) const;
  std::span<const float> parameter(int i) const;
  /// Returns a matrix of int8 by its name.
  OnnxMatrix int8_matrix(const std::string& name) const;
  /// Adds a parameter unchanged, under its name.
  std::string tensor(int i, const std::vector<Index>& shape);
  void made(int i, const std::string& name);

  OnnxGraph& onnx_;
  const graph::Graph& graph_;
  std::span<const float> parameters_;
  const nn::Parameters<float>* int8_;
  std::vector<std::string> names_;  // [values]
  const graph::Node* node_ = nullptr;
  std::vector<graph::ValueId> carried_;   // incoming states, in order
  std::vector<std::string> next_states_;  // names of their next values
  Index state_size_ = 0;
};

}  // namespace penstock::io
