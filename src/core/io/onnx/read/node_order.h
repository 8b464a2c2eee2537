#pragma once

#include <string>
#include <vector>

#include "io/onnx/read/messages.h"

namespace penstock::io::onnx {

/// Returns nodes in an order in which they can run: that of the file, if it is one. Throws Error(bad_input) if there is
/// none; `source` begins the message.
std::vector<const NodeMessage*> in_order(const std::vector<NodeMessage>& nodes, const std::string& source);

}  // namespace penstock::io::onnx
