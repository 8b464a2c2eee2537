#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"
#include "runtime/buffer.h"
#include "runtime/failure.h"

namespace penstock::runtime {

/// A tensor of a file.
struct Tensor {
  std::string name;
  std::string_view type = {};  ///< "F32"
  std::vector<Index> shape;
  Index begin = 0, end = 0;  ///< data_offsets
};

/// A safetensors file with a model of Penstock, checked as the full library checks it: form, layout, checksum.
class TensorFile {
 public:
  /// Reads a file, or bytes of the caller's, which must stay where they are.
  bool read(const char* path, Failure& failure);
  bool use(std::string_view bytes, Failure& failure);

  /// Returns whether the metadata have text under the key that models are described by.
  bool describes_model() const { return description_.has_value(); }
  const std::string& description() const { return *description_; }
  /// Returns the text that describes a network that `penstock import` wrote; null if there is none.
  const std::string* network() const { return network_ ? &*network_ : nullptr; }
  bool has_checksum() const { return has_checksum_; }
  std::uint64_t checksum() const { return checksum_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

  /// Returns the values of a tensor of floats with this shape; null after a failure.
  const float* floats(std::string_view name, const std::vector<Index>& shape, Failure& failure) const;
  /// Returns the values of a matrix of int8 with this shape; null after a failure.
  const std::int8_t* int8(std::string_view name, const std::vector<Index>& shape, Failure& failure) const;
  std::optional<std::size_t> find(std::string_view name) const;
  std::string_view bytes(const Tensor& tensor) const {
    return data_.substr(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.end - tensor.begin));
  }

 private:
  /// Returns the values of a tensor of this type and shape; null after a failure.
  const char* values(std::string_view name, std::string_view type, const std::vector<Index>& shape, Index element,
                     Failure& failure) const;
  bool parse(Failure& failure);
  bool parse_header(std::string_view header, Failure& failure);
  bool check_layout(Failure& failure);
  bool check_sum(std::string_view header, Failure& failure);
  bool align(Failure& failure);

  Buffer own_;
  std::string_view content_;
  std::string_view data_;
  std::vector<Tensor> tensors_;  // sorted by name
  std::optional<std::string> description_, network_, carried_;
  bool says_checked_ = false, has_checksum_ = false;
  std::uint64_t checksum_ = 0;
};

}  // namespace penstock::runtime
