#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/onnx/read/tensor.h"
#include "network/network.h"

namespace penstock::io::onnx {

/// Values that a caller fixes for inputs, by name: one for all elements, or one for each.
using FixedInputs = std::map<std::string, std::vector<double>>;

/// An input or output as the file declares it.
struct Declared {
  std::string name;
  bool has_shape = false;
  network::Shape shape;
};

/// A network, and what the file says of its outputs, whose shapes a network does not have.
struct BuiltNetwork {
  network::Network network;
  std::vector<Declared> outputs;
  Index opset = 0;
};

class LayerNames;

/// Makes a network of a file: nodes in an order in which they can run, operators in their newest form, bodies closed,
/// functions inlined. Throws Error that names node, operator and reason: bad_input for a damaged or contradictory file,
/// unsupported for a sound one, invalid_argument for fixed inputs that the file does not have. With `layers`, whatever
/// is not needed to find weights may be of any kind.
BuiltNetwork build_network(const ModelMessage& model, Source& source, const FixedInputs& fixed,
                           LayerNames* layers = nullptr);

/// Returns an input of a model. Throws Error(unsupported) for inputs that are no tensors, or have no shape.
network::Value input_of(const ValueMessage& message, const Source& source);

/// Returns the constant that an input becomes. Throws Error(invalid_argument) if the numbers do not fit it.
network::Constant fixed_value(const network::Value& input, const std::vector<double>& numbers);

}  // namespace penstock::io::onnx
