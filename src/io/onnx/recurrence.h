#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/onnx/onnx_graph.h"
#include "ops/recurrence/recurrence.h"

namespace penstock::io {

/// The weights of a recurrent layer, as ops::Recurrence says; absent ones are empty.
struct OnnxRecurrentWeights {
  std::span<const float> ih, hh, bias_ih, bias_hh;
};

/// What a recurrent layer makes: y [B, T, H], and the states behind the step that was read last, [B, H] each.
struct OnnxRecurrentValues {
  std::string y;
  std::vector<std::string> states;
};

/// Adds a recurrent layer that reads x [B, T, I] from the first step to the last, or backwards if it is reverse,
/// beginning with states of [B, H] each.
/// Where ONNX has an operator for its cell that is taken; everything else is written from the cell's own header: what
/// looks at the input alone for all steps at once, the rest as the body of a loop over steps.
OnnxRecurrentValues add_recurrence(OnnxGraph& graph, const ops::Recurrence& shape, const OnnxRecurrentWeights& weights,
                                   const std::string& x, const std::vector<std::string>& states,
                                   const std::string& name);

}  // namespace penstock::io
