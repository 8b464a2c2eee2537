#include "io/safetensors_header.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::io {
namespace {

using nlohmann::json;

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  Index size;
};

constexpr std::array<DTypeEntry, 13> dtypes = {{
    {DType::boolean, "BOOL", 1},
    {DType::u8, "U8", 1},
    {DType::i8, "I8", 1},
    {DType::u16, "U16", 2},
    {DType::i16, "I16", 2},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::u32, "U32", 4},
    {DType::i32, "I32", 4},
    {DType::f32, "F32", 4},
    {DType::u64, "U64", 8},
    {DType::i64, "I64", 8},
    {DType::f64, "F64", 8},
}};

/// Takes the header token by token, so that hostile JSON (deep nesting, millions of values, duplicate keys) is refused
/// where it starts instead of first becoming a tree in memory.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& source) : source_(source) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (where_ == Where::outside) {
      where_ = Where::header;
    } else if (where_ == Where::header && name_ == "__metadata__") {
      where_ = Where::metadata;
    } else if (where_ == Where::header) {
      where_ = Where::tensor;
      tensor_ = {};
      tensor_.name = name_;
      fields_ = {};
    } else {
      wrong_type();
    }
    return true;
  }

  bool key(std::string& key) override {
    if (where_ == Where::header) {
      if (!names_.insert(key).second) mistake("{} appears twice in the header", in_quotes(key));
      name_ = std::move(key);
      return true;
    }
    if (where_ == Where::tensor) {
      bool* seen = key == "dtype"          ? &fields_.dtype
                   : key == "shape"        ? &fields_.shape
                   : key == "data_offsets" ? &fields_.offsets
                                           : nullptr;
      if (seen == nullptr) mistake("tensor {}: unknown field {}", in_quotes(name_), in_quotes(key));
      if (std::exchange(*seen, true)) mistake("tensor {}: {} appears twice", in_quotes(name_), key);
    } else if (header_.metadata.contains(key)) {
      mistake("__metadata__: {} appears twice", in_quotes(key));
    }
    field_ = std::move(key);
    return true;
  }

  bool string(std::string& value) override {
    if (where_ == Where::metadata) {
      header_.metadata[field_] = std::move(value);
    } else if (where_ == Where::tensor && field_ == "dtype") {
      set_dtype(value);
    } else {
      wrong_type();
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::tensor || field_ == "dtype") wrong_type();
    where_ = Where::list;
    list_.clear();
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    // 64 dimensions are more than any framework knows; the limit only keeps a hostile list short.
    const std::size_t longest = field_ == "shape" ? 64 : 2;
    if (where_ != Where::list || value > std::uint64_t{std::numeric_limits<Index>::max()} || list_.size() == longest) {
      wrong_type();
    }
    list_.push_back(static_cast<Index>(value));
    return true;
  }

  bool end_array() override {
    where_ = Where::tensor;
    if (field_ == "shape") {
      tensor_.shape = list_;
    } else {
      if (list_.size() != 2) wrong_type();
      if (list_[0] > list_[1]) {
        mistake("tensor {}: data_offsets [{}, {}] end before they begin", in_quotes(name_), list_[0], list_[1]);
      }
      tensor_.offset = list_[0];
      tensor_.bytes = list_[1] - list_[0];
    }
    return true;
  }

  bool end_object() override {
    if (where_ == Where::tensor) finish_tensor();
    where_ = where_ == Where::header ? Where::outside : Where::header;
    return true;
  }

  bool null() override { wrong_type(); }
  bool boolean(bool) override { wrong_type(); }
  bool number_integer(std::int64_t) override { wrong_type(); }
  bool number_float(double, const std::string&) override { wrong_type(); }
  bool binary(json::binary_t&) override { wrong_type(); }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override { not_json(position); }
  [[noreturn]] void not_json(std::size_t position) const {
    mistake("the header is not JSON in UTF-8 (at its byte {})", position);
  }

 private:
  enum class Where { outside, header, metadata, tensor, list };
  struct Fields {
    bool dtype = false, shape = false, offsets = false;
  };

  template <class... Args>
  [[noreturn]] void mistake(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::bad_input, "{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// The value that was just met has no place here.
  [[noreturn]] void wrong_type() const {
    switch (where_) {
      case Where::outside:
        mistake("the header is not a JSON object");
      case Where::header:
        if (name_ == "__metadata__") mistake("__metadata__ must be an object of strings");
        mistake("tensor {}: must be an object with dtype, shape and data_offsets", in_quotes(name_));
      case Where::metadata:
        mistake("__metadata__: {} must be a string", in_quotes(field_));
      default:
        break;
    }
    if (field_ == "dtype") mistake("tensor {}: dtype must be a string", in_quotes(name_));
    if (field_ == "shape") mistake("tensor {}: shape must be a list of at most 64 whole numbers", in_quotes(name_));
    mistake("tensor {}: data_offsets must be two whole numbers", in_quotes(name_));
  }

  void set_dtype(const std::string& value) {
    for (const auto& entry : dtypes) {
      if (entry.name != value) continue;
      tensor_.dtype = entry.dtype;
      return;
    }
    std::string known;
    for (const auto& entry : dtypes) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
    mistake("tensor {}: dtype {} is none of {}", in_quotes(name_), in_quotes(value), known);
  }

  void finish_tensor() {
    if (!fields_.dtype) mistake("tensor {}: no dtype", in_quotes(name_));
    if (!fields_.shape) mistake("tensor {}: no shape", in_quotes(name_));
    if (!fields_.offsets) mistake("tensor {}: no data_offsets", in_quotes(name_));
    const Index count = count_of(tensor_.shape);
    const Index size = size_of(tensor_.dtype);
    if (count < 0 || count > std::numeric_limits<Index>::max() / size) {
      mistake("tensor {}: shape [{}] is too large", in_quotes(name_), fmt::join(tensor_.shape, ", "));
    }
    if (count * size != tensor_.bytes) {
      mistake("tensor {}: {} [{}] takes {} bytes, but its data_offsets span {}", in_quotes(name_),
              to_string(tensor_.dtype), fmt::join(tensor_.shape, ", "), count * size, tensor_.bytes);
    }
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& source_;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  Where where_ = Where::outside;
  std::string name_;   // of the tensor, or "__metadata__"
  std::string field_;  // inside it
  TensorInfo tensor_;
  Fields fields_;
  std::vector<Index> list_;
};

}  // namespace

Index size_of(DType dtype) { return dtypes[static_cast<std::size_t>(dtype)].size; }

std::string_view to_string(DType dtype) { return dtypes[static_cast<std::size_t>(dtype)].name; }

Index count_of(const std::vector<Index>& shape) {
  Index count = 1;
  for (const Index dimension : shape) {
    if (dimension < 0 || (dimension > 0 && count > std::numeric_limits<Index>::max() / dimension)) return -1;
    count *= dimension;
  }
  return count;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source) {
  HeaderReader reader(source);
  // The parser would skip a byte order mark, which the format does not allow.
  if (!text.starts_with('{')) fail(ErrorCode::bad_input, "{}: the header is not a JSON object", source);
  // It would also take a zero byte for the end of the text and ignore whatever hides behind it.
  if (const auto zero = text.find('\0'); zero != text.npos) reader.not_json(zero + 1);
  json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace penstock::io
