#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/types.h"

/// The header of safetensors files, read without exceptions: 8 bytes of its length, then JSON with names and places of
/// the tensors, whose values follow. All numbers are little-endian.
namespace penstock::safetensors {

/// Type of the values of a tensor.
enum class DType { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

/// Returns the bytes of one value.
Index size_of(DType dtype);
/// Returns the name of a type in files: "F32", "BF16", "BOOL", ...
std::string_view to_string(DType dtype);

/// Name, type, shape and place of a tensor in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;  ///< Empty: a scalar.
  Index offset = 0;          ///< Position of its first byte in the data part.
  Index bytes = 0;
};

/// Content of a header.
struct Header {
  std::size_t length = 0;  ///< Bytes of the JSON.
  /// In the order of the file. A name may be there twice.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<TensorInfo> tensors;  ///< In the order of their names.
};

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit

/// Reads the header of a file that nobody has vetted, and checks it: types, names of tensors that are there once, bytes
/// that match type and shape, and data covered by tensors without gap or overlap. Returns what is wrong; empty if
/// nothing is.
std::string read_header(std::string_view file, Header& header);

/// Returns the number of values of a shape; -1 if an extent is negative or their bytes would exceed 2^62.
Index count_of(const std::vector<Index>& shape);
/// Returns a shape as text, such as "2, 3", cut after some 100 characters.
std::string text_of(const std::vector<Index>& shape);

}  // namespace penstock::safetensors
