#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/files/safetensors_header.h"
#include "penstock/types.h"

/// The safetensors format: 8 bytes of header length, a JSON header with names and places of the tensors, then their
/// values, all little-endian. Model files and checkpoints have this format; model_file.h defines their tensors and
/// metadata.
namespace penstock::io {

using safetensors::DType;
using safetensors::size_of;
using safetensors::TensorInfo;
using safetensors::to_string;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::i32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return DType::i64;
  } else if constexpr (std::is_same_v<T, std::int8_t>) {
    return DType::i8;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return DType::u64;
  } else {
    static_assert(std::is_same_v<T, std::uint8_t>, "no safetensors dtype for this type");
    return DType::u8;
  }
}

using Metadata = std::map<std::string, std::string>;

/// Metadata key of files that must have a checksum but have no format version to say so. Without it, damage to the name
/// of the checksum would make such a file look like an old one without checksum. Readers do not see it.
inline constexpr const char* checked_key = "penstock.checked";
inline constexpr const char* checked_text = "a checksum of all bytes";

/// A safetensors file, read into memory and fully checked: all tensors are inside the file, do not overlap, and cover
/// its data part, and a checksum, if there is one, is right.
class SafetensorsFile {
 public:
  /// Reads a file. Throws Error: io_failure if it cannot be read; bad_input that names file and tensor if it is
  /// damaged.
  static SafetensorsFile open(const std::string& path);
  /// Reads a file from memory; `source` names it in messages.
  static SafetensorsFile parse(std::string content, std::string source);

  const std::string& source() const { return source_; }
  /// Returns "__metadata__" without the checksum; empty if the file has none.
  const Metadata& metadata() const { return metadata_; }
  /// Returns the checksum of the whole file, 16 hexadecimal digits, whether or not the file carries it.
  const std::string& checksum() const { return checksum_; }
  /// Returns whether the file carries its checksum.
  bool has_checksum() const { return has_checksum_; }
  /// Returns the tensors in the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Returns a tensor by name; null if there is none.
  const TensorInfo* find(const std::string& name) const;
  /// Returns the raw values of one of tensors(), not necessarily aligned for their type. Valid as long as this object.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  /// Copies a tensor into `values`. Throws Error: incompatible, with file and tensor, if it is missing or has another
  /// shape or type than T; invalid_argument if `values` has another size.
  template <class T>
  void read(const std::string& name, const std::vector<Index>& shape, std::span<T> values) const {
    read_bytes(name, dtype_of<T>(), shape, std::as_writable_bytes(values));
  }

 private:
  SafetensorsFile() = default;
  /// Throws Error(bad_input) if the checksum does not match the content.
  void check_sum(std::size_t header_length);
  void read_bytes(const std::string& name, DType dtype, const std::vector<Index>& shape,
                  std::span<std::byte> values) const;

  std::string source_;
  std::string content_;
  std::size_t data_begin_ = 0;
  Metadata metadata_;
  std::string checksum_;
  bool has_checksum_ = false;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// A tensor to be written. Its values must not change until write_safetensors() returns.
struct TensorData {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;
  std::span<const std::byte> values;
  std::shared_ptr<const void> owner = {};  ///< Keeps values alive that nobody else has.
};

/// Returns a TensorData for values of type T.
template <class T>
TensorData tensor_data(std::string name, std::vector<Index> shape, std::span<const T> values) {
  return {std::move(name), dtype_of<T>(), std::move(shape), std::as_bytes(values)};
}

/// Writes a file with a checksum of all its bytes in the metadata. `path` is replaced whole or not at all.
///
/// Tensors with the widest type come first, otherwise in the given order, so each is aligned to its type. Equal
/// arguments give equal files. Throws Error: io_failure if the file cannot be written; invalid_argument for a name that
/// is empty, reserved, used twice or not UTF-8, or for values that do not match their shape.
void write_safetensors(const std::string& path, std::span<const TensorData> tensors, const Metadata& metadata);

}  // namespace penstock::io
