#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace penstock::io {

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  ///< In the order of the header.
};

/// Reads the JSON of a header and checks all that can be seen in it alone: types, duplicate names, begin <= end, bytes
/// that agree with dtype and shape. `source` names the file in messages. Throws Error(bad_input).
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& source);

/// Number of values of a shape, or -1 if a dimension is negative or the product is beyond an Index.
Index count_of(const std::vector<Index>& shape);

}  // namespace penstock::io
