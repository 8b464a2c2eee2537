#pragma once

#include <span>
#include <string>

#include "io/onnx/read/messages.h"
#include "network/network.h"

namespace penstock::io::onnx {

/// Where an ONNX file comes from, and what its tensors may take.
struct Source {
  std::string name;    ///< For messages.
  std::string folder;  ///< Where files with external data are looked for; empty: nowhere.
  Index bytes = 0;     ///< Of all tensors so far.
};

/// Returns the type of elements by its number in ONNX; half precision becomes float. `what` begins the message, such as
/// "vad.onnx: input 'x'". Throws Error(unsupported) for types that networks do not have.
network::Type type_of(std::int64_t number, const std::string& what);

/// Returns whether networks have this type.
bool is_known_type(std::int64_t number);

/// Returns a tensor as a constant in memory of its own. Throws Error: bad_input if its values do not fit its shape or
/// the file with them is not beside the model; unsupported for its type.
network::Constant to_constant(const TensorMessage& tensor, Source& source);

/// Returns whether all elements are zero.
bool is_zero(const network::Constant& constant);

/// Returns a constant with the given elements.
network::Constant make_constant(network::Type type, network::Shape shape, std::span<const std::byte> bytes);
network::Constant make_integers(network::Shape shape, std::span<const Index> values);
network::Constant make_number(float value);

}  // namespace penstock::io::onnx
