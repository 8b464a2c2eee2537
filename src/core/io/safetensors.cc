#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "io/read_file.h"
#include "penstock/checksum.h"
#include "penstock/file_writer.h"

namespace penstock::io {
namespace {

using safetensors::count_of;
using safetensors::length_bytes;
using safetensors::longest_header;

constexpr std::uint64_t largest_file = std::uint64_t{64} << 30;  // the file is held in memory

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
  safetensors::Header header;
  const std::string problem = safetensors::read_header(file.content_, header);
  if (!problem.empty()) fail(ErrorCode::bad_input, "{}: {}", file.source_, problem);
  file.data_begin_ = length_bytes + header.length;
  for (auto& [key, text] : header.metadata) {
    const auto [entry, is_new] = file.metadata_.emplace(std::move(key), std::move(text));
    if (!is_new)
      fail(ErrorCode::bad_input, "{}: __metadata__: {} appears twice", file.source_, in_quotes(entry->first));
  }
  file.tensors_ = std::move(header.tensors);
  std::ranges::sort(file.tensors_, {}, [](const TensorInfo& tensor) { return std::tie(tensor.offset, tensor.bytes); });
  file.check_sum(header.length);
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
