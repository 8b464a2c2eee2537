#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/safetensors_header.h"
#include "penstock/types.h"
#include "runtime/buffer.h"
#include "runtime/failure.h"

namespace penstock::runtime {

using safetensors::DType;
using safetensors::TensorInfo;

/// A safetensors file with a model of Penstock, checked as the full library checks it: form, layout, checksum. What
/// runs once for each file is cold, so that compilers optimise it for its size.
class TensorFile {
 public:
  /// Reads a file, or bytes of the caller's, which must stay where they are.
  [[gnu::cold]] bool read(const char* path, Failure& failure);
  bool use(std::string_view bytes, Failure& failure);

  /// Returns whether the metadata have text under the key that models are described by.
  bool describes_model() const { return description_.has_value(); }
  const std::string& description() const { return *description_; }
  /// Returns the text that describes a network that `penstock import` wrote; null if there is none.
  const std::string* network() const { return network_ ? &*network_ : nullptr; }
  bool has_checksum() const { return has_checksum_; }
  std::uint64_t checksum() const { return checksum_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// Returns the values of a tensor of floats with this shape; null after a failure.
  const float* floats(std::string_view name, const std::vector<Index>& shape, Failure& failure) const;
  /// Returns the values of a matrix of int8 with this shape; null after a failure.
  const std::int8_t* int8(std::string_view name, const std::vector<Index>& shape, Failure& failure) const;
  std::optional<std::size_t> find(std::string_view name) const;
  std::string_view bytes(const TensorInfo& tensor) const {
    return data_.substr(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes));
  }

 private:
  /// Returns the values of a tensor of this type and shape; null after a failure.
  [[gnu::cold]] const char* values(std::string_view name, DType dtype, const std::vector<Index>& shape,
                                   Failure& failure) const;
  [[gnu::cold]] bool parse(Failure& failure);
  [[gnu::cold]] bool check_sum(std::string_view header, Failure& failure);
  [[gnu::cold]] bool align(Failure& failure);

  Buffer own_;
  std::string_view content_;
  std::string_view data_;
  std::vector<TensorInfo> tensors_;  // sorted by name
  std::optional<std::string> description_, network_, carried_;
  bool says_checked_ = false, has_checksum_ = false;
  std::uint64_t checksum_ = 0;
};

}  // namespace penstock::runtime
