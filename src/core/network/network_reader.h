#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// A tensor of a safetensors file.
struct StoredTensor {
  std::string_view type;  ///< "F32"
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = {};  ///< As in Constant.
};
using FindTensor = std::function<std::optional<StoredTensor>(const std::string& name)>;

/// Reads the structure of a network from the JSON of a file that nobody has vetted (io/network_file.h has the format),
/// and checks it. Returns a Status: incompatible for a later format; bad_input, with the place, for a mistake.
Status read_network(std::string_view json, const FindTensor& find, Network& network);

/// Returns the name of a type in network files and in public interfaces, such as "f32".
std::string_view short_name_of(Type type);

}  // namespace penstock::network
