#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/onnx/read/graph_to_network.h"

namespace penstock::io::onnx {

/// How states are to be found.
struct StateChoice {
  bool automatic = true;                                        ///< Also those that names and data flow show.
  std::vector<std::pair<std::string, std::string>> pairs = {};  ///< Input and output of each that the caller names.
};

/// Sets Network::states: the inputs whose next value is an output. Found are
///
/// - inputs that start a recurrent layer, with the output that is its last state, and
/// - inputs with the name of an output but for words such as "in", "prev", "next", "out" or a final "n", if names speak
///   of a state ("h", "state", "cache"), shapes can be equal and the output depends on the input.
///
/// Throws Error: invalid_argument for pairs that cannot be states; unsupported, with the candidates, if it is not clear
/// whether inputs are states.
void find_states(BuiltNetwork& built, const StateChoice& choice, const std::string& source);

}  // namespace penstock::io::onnx
