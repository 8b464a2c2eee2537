#pragma once

#include <string>

#include "nn/model/graph_builder.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

/// How a series is read and forecast by its changes, if the spec says so.
ops::Changes changes_of(const DataDescription& data);

/// What names of a member's parameters begin with; nothing where there is only one.
std::string member_prefix(const ModelSpec& spec, Index member);

/// Where a model's graph ends.
struct ModelEnds {
  ValueId outputs;  ///< [B, T, O]
  ValueId head;     ///< The same as the last layer made it, in the type of activations: a backward pass starts here
};

/// Adds the layers of a model: embedding or linear input, blocks, norm, linear head. The spec must have passed
/// check_spec(). `outputs`: where they are wanted. Of an ensemble there is no backward pass.
///
/// An ensemble is the sum of its members' heads, which combine() has divided by their number.
///
/// x_0 = input; of every residual the norm reads the sum of all before it:
///   x = x + dropout(projection(recurrence(convolution(norm(x))))), x = x + dropout(down(silu_gate(up(norm(x)))))
ModelEnds add_model(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, graph::Home outputs);

/// The parameters of a model, without preparing anything.
ParameterLayout model_layout(const ModelSpec& spec, const DataDescription& data);

}  // namespace penstock::nn
