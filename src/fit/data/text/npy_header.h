#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock::data {

/// The header of an array that NumPy has written (.npy).
struct NpyHeader {
  Index width = 0;        ///< Bytes of a number.
  Index count = 0;        ///< Numbers in the array.
  std::size_t bytes = 0;  ///< Length of the header.
};

/// Returns whether a file begins like an array of NumPy.
bool is_npy(std::string_view beginning);

/// Reads the header of a list of whole numbers. `beginning` has at least the header. Throws Error(bad_input) for
/// another array, or a damaged header.
NpyHeader read_npy_header(std::string_view beginning, const std::string& path);

}  // namespace penstock::data
