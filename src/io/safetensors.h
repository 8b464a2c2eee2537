#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "penstock/types.h"

/// The safetensors format: 8 bytes of header length, a JSON header that names the tensors, then their values, all
/// little-endian. Model files and checkpoints are such files; what their tensors and metadata mean is known above.
namespace penstock::io {

/// How the values of a tensor are stored.
enum class DType { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

/// Bytes of one value.
Index size_of(DType dtype);
/// As in the file: "F32", "BF16", "BOOL", ...
std::string_view to_string(DType dtype);

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
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return DType::u64;
  } else {
    static_assert(std::is_same_v<T, std::uint8_t>, "no safetensors dtype for this type");
    return DType::u8;
  }
}

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;  ///< Empty: a scalar.
  Index offset = 0;          ///< Of its first byte, from the start of the data part.
  Index bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

/// A key of the metadata of files that must carry a checksum and have no version that says so: without it, damage to
/// the name of the checksum would make them look like files from before there were any. Readers do not see it.
inline constexpr const char* checked_key = "penstock.checked";
inline constexpr const char* checked_text = "a checksum of all bytes";

/// A safetensors file, read into memory and checked from end to end: after construction every TensorInfo lies inside
/// the file, no two overlap, together they cover it, and a checksum, if there is one, is right.
class SafetensorsFile {
 public:
  /// Throws Error(io_failure) if the file cannot be read, Error(bad_input) naming file and tensor if it is not sound.
  static SafetensorsFile open(const std::string& path);
  /// The same for bytes already in memory; `source` names them in messages.
  static SafetensorsFile parse(std::string content, std::string source);

  const std::string& source() const { return source_; }
  /// "__metadata__" but for the checksum; empty if the file has none.
  const Metadata& metadata() const { return metadata_; }
  /// Of the whole file, 16 hexadecimal digits: the one that the file carries, which was found to be right; computed for
  /// a file that carries none.
  const std::string& checksum() const { return checksum_; }
  bool has_checksum() const { return has_checksum_; }
  /// In the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Null if there is no such tensor.
  const TensorInfo* find(const std::string& name) const;
  /// The raw values of one of tensors(); not necessarily aligned for their type. Valid as long as this object.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  /// Copies a tensor into `values`. Throws Error(incompatible), naming file and tensor, unless it is there with this
  /// shape and with the dtype of T, and Error(invalid_argument) unless `values` has room for exactly that many.
  template <class T>
  void read(const std::string& name, const std::vector<Index>& shape, std::span<T> values) const {
    read_bytes(name, dtype_of<T>(), shape, std::as_writable_bytes(values));
  }

 private:
  SafetensorsFile() = default;
  /// Throws Error(bad_input) for a checksum that is not that of the content.
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

/// A tensor to be written; the values stay where they are until write_safetensors() returns.
struct TensorData {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;
  std::span<const std::byte> values;
};

template <class T>
TensorData tensor_data(std::string name, std::vector<Index> shape, std::span<const T> values) {
  return {std::move(name), dtype_of<T>(), std::move(shape), std::as_bytes(values)};
}

/// Writes a file that replaces `path` as a whole or not at all (see write_atomically), with a checksum of all its bytes
/// in the metadata. Tensors are stored widest dtype
/// first, otherwise in the order given, which aligns each to its type; equal arguments give equal files.
/// Throws Error(io_failure) if it cannot be written; Error(invalid_argument) for a name that is empty, reserved, used
/// twice or not UTF-8, or for values that do not fill their shape.
void write_safetensors(const std::string& path, std::span<const TensorData> tensors, const Metadata& metadata);

}  // namespace penstock::io
