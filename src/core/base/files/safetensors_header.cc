#include "base/files/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/json_reader.h"
#include "base/quoted.h"

namespace penstock::safetensors {

static_assert(std::endian::native == std::endian::little, "values are used as they are, and files are little-endian");

namespace {

struct DTypeEntry {
  std::string_view name;
  Index size;
};
constexpr DTypeEntry dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
                                 {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}};
constexpr const char* fields[] = {"dtype", "shape", "data_offsets"};
constexpr std::size_t most_dimensions = 64;  // more than any framework knows; keeps a hostile list short

class HeaderReader {
 public:
  HeaderReader(std::string_view json, Header& header)
      : text_(json), json_(json, "the header is not JSON in UTF-8"), header_(header) {}

  std::string read(std::size_t data_bytes) {
    if (!text_.starts_with('{')) {
      fail("the header is not a JSON object");
    } else if (!read_fields() || !json_.finish()) {
      fail("%s", json_.problem().c_str());
    } else if (check_layout(static_cast<Index>(data_bytes))) {
      check_names();
    }
    return std::move(problem_);
  }

 private:
  /// Keeps the first problem. Returns false.
  [[gnu::format(printf, 2, 3)]] bool fail(const char* format, ...) {
    if (!problem_.empty()) return false;
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    problem_ = text;
    return false;
  }

  bool read_fields() {
    bool has_metadata = false;
    return json_.object([&](std::string_view name) {
      if (name != "__metadata__") return read_tensor(name);
      if (std::exchange(has_metadata, true)) return fail("\"__metadata__\" appears twice in the header");
      return read_metadata();
    });
  }

  bool read_metadata() {
    const bool read = json_.object([&](std::string_view key) {
      auto& [name, value] = header_.metadata.emplace_back();
      name = key;
      return json_.string(value) || fail("__metadata__: %s must be a string", Quoted(key).c_str());
    });
    return read || fail("__metadata__ must be an object of strings");
  }

  bool read_tensor(std::string_view name) {
    TensorInfo& tensor = header_.tensors.emplace_back();
    tensor.name = name;
    const Quoted quoted(name);
    bool seen[3] = {};
    const bool read = json_.object([&](std::string_view field) {
      const auto which = std::ranges::find(fields, field) - fields;
      if (which == 3) return fail("tensor %s: unknown field %s", quoted.c_str(), Quoted(field).c_str());
      if (std::exchange(seen[which], true)) return fail("tensor %s: %s appears twice", quoted.c_str(), fields[which]);
      return which == 0   ? read_dtype(quoted, tensor)
             : which == 1 ? read_shape(quoted, tensor)
                          : read_offsets(quoted, tensor);
    });
    if (!read) return fail("tensor %s: must be an object with dtype, shape and data_offsets", quoted.c_str());
    const auto missing = std::ranges::find(seen, false) - seen;
    if (missing != 3) return fail("tensor %s: no %s", quoted.c_str(), fields[missing]);
    return check_bytes(quoted, tensor);
  }

  bool read_list(std::size_t most, std::vector<Index>& list) {
    return json_.array([&] { return list.size() < most && json_.integer(list.emplace_back()) && list.back() >= 0; });
  }

  bool read_shape(const Quoted& tensor_name, TensorInfo& tensor) {
    return read_list(most_dimensions, tensor.shape) ||
           fail("tensor %s: shape must be a list of at most 64 whole numbers", tensor_name.c_str());
  }

  bool read_dtype(const Quoted& tensor_name, TensorInfo& tensor) {
    std::string type;
    if (!json_.string(type)) return fail("tensor %s: dtype must be a string", tensor_name.c_str());
    const auto* const found = std::ranges::find(dtypes, type, &DTypeEntry::name);
    tensor.dtype = static_cast<DType>(found - dtypes);
    if (found != std::end(dtypes)) return true;
    return fail("tensor %s: dtype %s is none of BOOL, U8, I8, U16, I16, F16, BF16, U32, I32, F32, U64, I64, F64",
                tensor_name.c_str(), Quoted(type).c_str());
  }

  bool read_offsets(const Quoted& tensor_name, TensorInfo& tensor) {
    std::vector<Index> offsets;
    if (!read_list(2, offsets) || offsets.size() != 2) {
      return fail("tensor %s: data_offsets must be two whole numbers", tensor_name.c_str());
    }
    tensor.offset = offsets[0];
    tensor.bytes = offsets[1] - offsets[0];
    return tensor.bytes >= 0 || fail("tensor %s: data_offsets [%" PRId64 ", %" PRId64 "] end before they begin",
                                     tensor_name.c_str(), offsets[0], offsets[1]);
  }

  bool check_bytes(const Quoted& name, const TensorInfo& tensor) {
    const Index count = count_of(tensor.shape);
    const std::string shape = text_of(tensor.shape);
    if (count < 0) return fail("tensor %s: shape [%s] is too large", name.c_str(), shape.c_str());
    const Index bytes = count * size_of(tensor.dtype);
    return bytes == tensor.bytes ||
           fail("tensor %s: %s [%s] takes %" PRId64 " bytes, but its data_offsets span %" PRId64, name.c_str(),
                to_string(tensor.dtype).data(), shape.c_str(), bytes, tensor.bytes);
  }

  /// Puts the tensors into the order of their data, which they must cover without gap or overlap.
  bool check_layout(Index size) {
    sort([](const TensorInfo* a, const TensorInfo* b) {
      return std::tie(a->offset, a->bytes, a->name) < std::tie(b->offset, b->bytes, b->name);
    });
    Index covered = 0;
    const TensorInfo* previous = nullptr;
    for (const TensorInfo& tensor : header_.tensors) {
      const Quoted name(tensor.name);
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
        return fail("tensor %s: data_offsets [%" PRId64 ", %" PRId64 "] reach beyond the %" PRId64
                    " bytes of data in the file",
                    name.c_str(), tensor.offset, tensor.offset + tensor.bytes, size);
      }
      if (tensor.offset < covered) {
        return fail("tensor %s overlaps tensor %s", name.c_str(), Quoted(previous->name).c_str());
      }
      const Index gap = tensor.offset - covered;
      if (gap > 0) {
        return fail("%" PRId64 " byte%s before tensor %s belonging to no tensor", gap, gap == 1 ? "" : "s",
                    name.c_str());
      }
      covered = tensor.offset + tensor.bytes;
      previous = &tensor;
    }
    const Index left = size - covered;
    return left == 0 ||
           fail("%" PRId64 " byte%s after the last tensor belonging to no tensor", left, left == 1 ? "" : "s");
  }

  bool check_names() {
    sort([](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
    const auto twice = std::ranges::adjacent_find(header_.tensors, {}, &TensorInfo::name);
    return twice == header_.tensors.end() || fail("%s appears twice in the header", Quoted(twice->name).c_str());
  }

  /// Sorts pointers, and by a pointer to a function: small programs then have one short sort.
  void sort(bool (*is_before)(const TensorInfo*, const TensorInfo*)) {
    std::vector<TensorInfo*> order;
    order.reserve(header_.tensors.size());
    for (TensorInfo& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), is_before);
    std::vector<TensorInfo> sorted;
    sorted.reserve(order.size());
    for (TensorInfo* tensor : order) sorted.push_back(std::move(*tensor));
    header_.tensors.swap(sorted);
  }

  std::string_view text_;
  JsonReader json_;
  Header& header_;
  std::string problem_;
};

}  // namespace

Index size_of(DType dtype) { return dtypes[static_cast<std::size_t>(dtype)].size; }

std::string_view to_string(DType dtype) { return dtypes[static_cast<std::size_t>(dtype)].name; }

Index count_of(const std::vector<Index>& shape) {
  constexpr Index most = Index{1} << 59;  // of values of 8 bytes
  Index count = 1;
  for (const Index extent : shape) {
    if (extent < 0 || (extent > 0 && count > most / extent)) return -1;
    count *= extent;
  }
  return count;
}

std::string text_of(const std::vector<Index>& shape) {
  std::string text;
  for (const Index extent : shape) {
    char number[24];
    std::snprintf(number, sizeof(number), "%s%" PRId64, text.empty() ? "" : ", ", extent);
    text += number;
    if (text.size() > 100) return text + " ...";
  }
  return text;
}

std::string read_header(std::string_view file, Header& header) {
  if (file.size() < length_bytes) {
    return "no safetensors file: " + std::to_string(file.size()) + " bytes are too few for a header";
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  if (length > longest_header) {
    return "no safetensors file, which is what a model is kept in: it does not begin with the length of a header";
  }
  const std::size_t rest = file.size() - length_bytes;
  if (length > rest) {
    return "no safetensors file, or a truncated one: its header would be " + std::to_string(length) +
           " bytes long, the file has " + std::to_string(file.size());
  }
  header.length = static_cast<std::size_t>(length);
  return HeaderReader(file.substr(length_bytes, header.length), header).read(rest - header.length);
}

}  // namespace penstock::safetensors
