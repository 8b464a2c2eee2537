#pragma once

#include <string>

#include "nn/model/graph_builder.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

/// The graph of a model: its layers and the layout of its parameters.
namespace penstock::nn {

/// Returns how a series is read and forecast by its changes, for ModelSpec::from_last.
ops::Changes changes_of(const DataDescription& data);

/// Returns the prefix of the parameter names of an ensemble member; empty for a single model.
std::string member_prefix(const ModelSpec& spec, Index member);

/// The last values of a model's graph.
struct ModelEnds {
  ValueId outputs;  ///< [B, T, O]
  ValueId head;     ///< Output of the last layer, in the type of activations; a backward pass starts here
};

/// Adds the layers of a model: embedding or linear input, blocks, norm, linear head. The spec must have passed
/// check_spec(). `outputs`: home of the outputs. An ensemble has no backward pass; its output is the sum of its
/// members' heads, which combine() has divided by their number.
///
/// x_0 = input; each block updates x twice, where norm(x) reads the sum so far:
///   x = x + dropout(projection(recurrence(convolution(norm(x))))), x = x + dropout(down(silu_gate(up(norm(x)))))
ModelEnds add_model(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, graph::Home outputs);

}  // namespace penstock::nn
