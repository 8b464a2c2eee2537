#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

/// The JSON header of safetensors files.
namespace penstock::io {

/// Content of a header.
struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  ///< In the order of the header.
};

/// Reads the JSON of a header and checks what the header alone shows: types, duplicate names, begin <= end, and bytes
/// that match dtype and shape. `source` names the file in messages. Throws Error(bad_input).
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& source);

/// Returns the number of values of a shape; -1 if a dimension is negative or the product exceeds an Index.
Index count_of(const std::vector<Index>& shape);

}  // namespace penstock::io
