#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/onnx/int8_to_onnx.h"
#include "io/onnx/onnx_graph.h"
#include "ops/recurrence/recurrence.h"

/// Export of recurrent layers to ONNX.
namespace penstock::io {

/// Weights of a recurrent layer, as in ops::Recurrence; absent ones are empty.
struct OnnxRecurrentWeights {
  OnnxMatrix ih, hh;
  std::span<const float> bias_ih, bias_hh;
};

/// Names of the outputs of a recurrent layer: y [B, T, H], and the final states, [B, H] each.
struct OnnxRecurrentValues {
  std::string y;
  std::vector<std::string> states;
};

/// Adds a recurrent layer that reads x [B, T, I], in reverse if the shape says so, from initial states [B, H] each.
///
/// Uses the ONNX operator of the cell if there is one. Otherwise it traces the cell's own header: the part that depends
/// on the input alone for all steps at once, the rest as the body of a loop over steps. Of int8 weights, onnxruntime
/// runs LSTM layers with one head and products with the input in int8; other recurrent products are of floats.
OnnxRecurrentValues add_recurrence(OnnxGraph& graph, const ops::Recurrence& shape, const OnnxRecurrentWeights& weights,
                                   const std::string& x, const std::vector<std::string>& states,
                                   const std::string& name);

}  // namespace penstock::io
