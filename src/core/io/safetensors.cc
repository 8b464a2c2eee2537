#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "io/read_file.h"
#include "io/safetensors_header.h"
#include "penstock/checksum.h"
#include "penstock/file_writer.h"

namespace penstock::io {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they are, and files are little-endian");

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;            // the format's own limit
constexpr std::uint64_t largest_file = std::uint64_t{64} << 30;  // the file is held in memory

/// Puts the tensors into the order of their data and checks that they cover `size` bytes without gap or overlap.
void check_layout(std::vector<TensorInfo>& tensors, Index size, const std::string& source) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  Index covered = 0;
  const TensorInfo* previous = nullptr;
  for (const auto& tensor : tensors) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
      fail(ErrorCode::bad_input, "{}: tensor {}: data_offsets [{}, {}] reach beyond the {} bytes of data in the file",
           source, in_quotes(tensor.name), tensor.offset, tensor.offset + tensor.bytes, size);
    }
    if (tensor.offset < covered) {
      fail(ErrorCode::bad_input, "{}: tensor {} overlaps tensor {}", source, in_quotes(tensor.name),
           in_quotes(previous->name));
    }
    if (tensor.offset > covered) {
      fail(ErrorCode::bad_input, "{}: {} before tensor {} belonging to no tensor", source,
           counted(tensor.offset - covered, "byte"), in_quotes(tensor.name));
    }
    covered = tensor.offset + tensor.bytes;
    previous = &tensor;
  }
  if (covered != size) {
    fail(ErrorCode::bad_input, "{}: {} after the last tensor belonging to no tensor", source,
         counted(size - covered, "byte"));
  }
}

constexpr std::string_view checksum_key = "penstock.checksum";

/// The header of a file to be written, padded with spaces so that the data start at a multiple of 8.
std::string header_text(const std::vector<const TensorData*>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = metadata;
  header["__metadata__"][std::string(checksum_key)] = std::string(checksum_digits, '0');
  std::size_t offset = 0;
  for (const auto* tensor : tensors) {
    const std::size_t end = offset + tensor->values.size();
    header[tensor->name] = {
        {"dtype", to_string(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    fail(ErrorCode::invalid_argument, "tensor names and metadata must be valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void check_tensors(std::span<const TensorData> tensors) {
  std::set<std::string_view> names;
  for (const auto& tensor : tensors) {
    require(!tensor.name.empty() && tensor.name != "__metadata__", "a tensor cannot be named {}",
            in_quotes(tensor.name));
    require(names.insert(tensor.name).second, "two tensors are named {}", in_quotes(tensor.name));
    const Index count = count_of(tensor.shape);
    require(count >= 0 && static_cast<std::size_t>(count) * size_of(tensor.dtype) == tensor.values.size(),
            "tensor {}: {} [{}] does not describe its {} bytes", in_quotes(tensor.name), to_string(tensor.dtype),
            fmt::join(tensor.shape, ", "), tensor.values.size());
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) { return parse(read_file(path, largest_file), path); }

SafetensorsFile SafetensorsFile::parse(std::string content, std::string source) {
  SafetensorsFile file;
  file.source_ = std::move(source);
  file.content_ = std::move(content);
  const std::string_view all = file.content_;
  if (all.size() < length_bytes) {
    fail(ErrorCode::bad_input, "{}: no safetensors file: {} bytes are too few for a header", file.source_, all.size());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, all.data(), length_bytes);
  if (length > longest_header) {
    fail(ErrorCode::bad_input,
         "{}: no safetensors file, which is what a model is kept in: it does not begin with the length of a header",
         file.source_);
  }
  if (length > all.size() - length_bytes) {
    fail(ErrorCode::bad_input,
         "{}: no safetensors file, or a truncated one: its header would be {} bytes long, the file has {}",
         file.source_, length, all.size());
  }
  SafetensorsHeader header = parse_safetensors_header(all.substr(length_bytes, length), file.source_);
  file.data_begin_ = length_bytes + length;
  file.metadata_ = std::move(header.metadata);
  file.tensors_ = std::move(header.tensors);
  check_layout(file.tensors_, static_cast<Index>(all.size() - file.data_begin_), file.source_);
  file.check_sum(length);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.by_name_[file.tensors_[i].name] = i;
  return file;
}

void SafetensorsFile::check_sum(std::size_t header_length) {
  const auto carried = metadata_.find(std::string(checksum_key));
  has_checksum_ = carried != metadata_.end();
  const std::string_view header = std::string_view(content_).substr(length_bytes, header_length);
  const std::size_t place = has_checksum_ ? checksum_place(header, checksum_key) : header.npos;
  if (place == header.npos) {
    checksum_ = checksum_of(std::vector{std::as_bytes(std::span(content_))});
  } else {
    checksum_ = checksum_of(content_, length_bytes + place);
  }
  if (metadata_.erase(std::string(checked_key)) > 0 && !has_checksum_) {
    fail(ErrorCode::bad_input, "{}: damaged: it says that it carries a checksum, and there is none", source_);
  }
  if (has_checksum_ && carried->second != checksum_) {
    fail(ErrorCode::bad_input, "{}: damaged: the checksum is {}, and that of the content {}", source_,
         in_quotes(carried->second), checksum_);
  }
  metadata_.erase(std::string(checksum_key));
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return std::as_bytes(std::span(content_)).subspan(data_begin_ + tensor.offset, tensor.bytes);
}

void SafetensorsFile::read_bytes(const std::string& name, DType dtype, const std::vector<Index>& shape,
                                 std::span<std::byte> values) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) fail(ErrorCode::incompatible, "{}: no tensor {}", source_, in_quotes(name));
  if (tensor->dtype != dtype || tensor->shape != shape) {
    fail(ErrorCode::incompatible, "{}: tensor {} is {} [{}], not {} [{}]", source_, in_quotes(name),
         to_string(tensor->dtype), fmt::join(tensor->shape, ", "), to_string(dtype), fmt::join(shape, ", "));
  }
  const auto stored = bytes(*tensor);
  require(values.size() == stored.size(), "tensor {} has {} bytes, the room for it {}", in_quotes(name), stored.size(),
          values.size());
  std::copy(stored.begin(), stored.end(), values.begin());
}

void write_safetensors(const std::string& path, std::span<const TensorData> tensors, const Metadata& metadata) {
  check_tensors(tensors);
  std::vector<const TensorData*> ordered;
  for (const auto& tensor : tensors) ordered.push_back(&tensor);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const TensorData* a, const TensorData* b) { return size_of(a->dtype) > size_of(b->dtype); });
  std::string header = header_text(ordered, metadata);
  const std::uint64_t length = header.size();
  require(length <= longest_header, "a safetensors header of {} bytes is too long ({} are allowed)", length,
          longest_header);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(&length, 1)),
                                                    std::as_bytes(std::span(header))};
  for (const auto* tensor : ordered) pieces.push_back(tensor->values);
  header.replace(checksum_place(header, checksum_key), checksum_digits, checksum_of(pieces));
  FileWriter file(path);
  for (const auto piece : pieces) file.write({reinterpret_cast<const char*>(piece.data()), piece.size()});
  file.finish();
}

}  // namespace penstock::io
