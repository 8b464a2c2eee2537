#include "runtime/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <tuple>

#include "base/json_reader.h"
#include "runtime/checksum.h"

namespace penstock::runtime {

static_assert(std::endian::native == std::endian::little, "values are used as they are, and files are little-endian");

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kDescription = "penstock", kNetwork = "penstock.network", kChecksum = "penstock.checksum",
                           kChecked = "penstock.checked";
constexpr std::size_t kMostDimensions = 64;

struct ElementType {
  std::string_view name;
  Index size;
};
constexpr ElementType kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
                                  {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}};

/// The bytes of a tensor, or -1 for more than there could be.
Index bytes_of(const std::vector<Index>& shape, Index element) {
  constexpr Index most = Index{1} << 62;
  Index bytes = element;
  for (const Index extent : shape) {
    if (extent < 0 || (extent > 0 && bytes > most / extent)) return -1;
    bytes *= extent;
  }
  return bytes;
}

/// Whole numbers of an array, at most `most` of them.
bool read_list(JsonReader& json, std::size_t most, std::vector<Index>& list) {
  list.clear();
  return json.array([&] {
    if (list.size() == most) return json.mistake("fewer numbers");
    return json.integer(list.emplace_back()) && (list.back() >= 0 || json.mistake("no negative number"));
  });
}

bool read_tensor(JsonReader& json, Tensor& tensor, Failure& failure) {
  std::string type;
  std::vector<Index> offsets;
  bool has_shape = false;
  const bool read = json.object([&](std::string_view field) {
    if (field == "dtype" && type.empty()) return json.string(type);
    if (field == "data_offsets" && offsets.empty()) return read_list(json, 2, offsets);
    if (field != "shape" || has_shape) return json.mistake("dtype, shape and data_offsets, each once,");
    has_shape = true;
    return read_list(json, kMostDimensions, tensor.shape);
  });
  if (!read) return false;
  const Quoted name(tensor.name);
  const auto* const found = std::ranges::find(kTypes, type, &ElementType::name);
  if (found == std::end(kTypes) || !has_shape || offsets.size() != 2) {
    return failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s needs a known dtype, a shape and two data_offsets",
                           name.c_str());
  }
  tensor.type = found->name;
  tensor.begin = offsets[0], tensor.end = offsets[1];
  if (tensor.begin > tensor.end || bytes_of(tensor.shape, found->size) != tensor.end - tensor.begin) {
    return failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s: its data_offsets do not span its shape", name.c_str());
  }
  return true;
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

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

bool TensorFile::read(const char* path, Failure& failure) {
  const auto fail = [&] {
    return failure.set(PENSTOCK_IO_FAILURE, "cannot read '%s': %s", path, std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "rb"));
  if (file == nullptr) return fail();
  // A pipe has no size, and a file may grow: read to its end, in pieces that double.
  std::size_t size = 0, room = 0;
  for (Buffer larger;;) {
    if (size == room) {
      room = room == 0 ? std::size_t{1} << 16 : 2 * room;
      if (!larger.allocate(room)) {
        return failure.set(PENSTOCK_OUT_OF_MEMORY, "cannot read '%s': no memory for %zu bytes", path, room);
      }
      if (size > 0) std::memcpy(larger.data(), own_.data(), size);
      std::swap(own_, larger);
    }
    errno = 0;
    const std::size_t got = std::fread(own_.data() + size, 1, room - size, file.get());
    size += got;
    if (got > 0) continue;
    if (std::ferror(file.get()) != 0) return fail();
    break;
  }
  content_ = {reinterpret_cast<const char*>(own_.data()), size};
  return parse(failure);
}

bool TensorFile::use(std::string_view bytes, Failure& failure) {
  content_ = bytes;
  return parse(failure);
}

bool TensorFile::parse(Failure& failure) {
  std::uint64_t length = 0;
  if (content_.size() >= kLengthBytes) std::memcpy(&length, content_.data(), kLengthBytes);
  if (content_.size() < kLengthBytes || length > kLongestHeader) {
    return failure.in_file(PENSTOCK_BAD_INPUT,
                           "no safetensors file, in which models are kept: it does not begin with "
                           "the length of a header");
  }
  if (length > content_.size() - kLengthBytes) {
    return failure.in_file(PENSTOCK_BAD_INPUT,
                           "no safetensors file, or a truncated one: a header of %" PRIu64 " bytes in a file of %zu",
                           length, content_.size());
  }
  const std::string_view header = content_.substr(kLengthBytes, static_cast<std::size_t>(length));
  data_ = content_.substr(kLengthBytes + header.size());
  return parse_header(header, failure) && check_layout(failure) && check_sum(header, failure) && align(failure);
}

bool TensorFile::parse_header(std::string_view header, Failure& failure) {
  JsonReader json(header, "header");
  bool has_metadata = false;
  const auto metadata = [&](std::string_view key) {
    std::string value;
    if (!json.string(value)) return false;
    const auto keep = [&](std::optional<std::string>& text) {
      if (text) return json.mistake("each field of the metadata once");
      text = std::move(value);
      return true;
    };
    if (key == kDescription) return keep(description_);
    if (key == kNetwork) return keep(network_);
    if (key == kChecksum) return keep(carried_);
    says_checked_ = says_checked_ || key == kChecked;
    return true;
  };
  const bool read = json.object([&](std::string_view name) {
    if (name != "__metadata__") {
      tensors_.emplace_back().name = name;
      return read_tensor(json, tensors_.back(), failure);
    }
    if (has_metadata) return json.mistake("__metadata__ once");
    has_metadata = true;
    return json.object(metadata);
  });
  return (read && json.finish()) || failure.in_json(json);
}

/// Tensors cover the data without gap or overlap, and each has a name of its own.
bool TensorFile::check_layout(Failure& failure) {
  std::ranges::sort(tensors_, {}, [](const Tensor& tensor) { return std::tie(tensor.begin, tensor.end); });
  Index covered = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.begin != covered) {
      return failure.in_file(PENSTOCK_BAD_INPUT,
                             "tensor %s begins at byte %" PRId64 " of the data, not at %" PRId64
                             ", where the one before ends",
                             Quoted(tensor.name).c_str(), tensor.begin, covered);
    }
    covered = tensor.end;
  }
  if (static_cast<std::uint64_t>(covered) != data_.size()) {
    return failure.in_file(PENSTOCK_BAD_INPUT, "tensors take %" PRId64 " bytes, the file has %zu", covered,
                           data_.size());
  }
  std::ranges::sort(tensors_, {}, &Tensor::name);
  const auto twice = std::ranges::adjacent_find(tensors_, {}, &Tensor::name);
  if (twice == tensors_.end()) return true;
  return failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s is there twice", Quoted(twice->name).c_str());
}

bool TensorFile::check_sum(std::string_view header, Failure& failure) {
  has_checksum_ = carried_.has_value();
  if (!has_checksum_) {
    if (!says_checked_) return true;
    return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: it says that it carries a checksum, and there is none");
  }
  const std::string before = "\"" + std::string(kChecksum) + "\":\"";
  const std::size_t found = header.find(before);
  const std::size_t place = kLengthBytes + found + before.size();
  char digits[24] = "none";
  if (found != header.npos && place + checksum_digits <= kLengthBytes + header.size() && content_.size() > 240) {
    checksum_ = checksum_of(content_, place);
    std::snprintf(digits, sizeof(digits), "%016" PRIx64, checksum_);
  }
  if (*carried_ == digits) return true;
  return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: the checksum is %s, and that of the content %s",
                         Quoted(*carried_).c_str(), digits);
}

/// Floats lie where floats may lie: an array of bytes in a program may begin anywhere.
bool TensorFile::align(Failure& failure) {
  if (reinterpret_cast<std::size_t>(data_.data()) % alignof(float) == 0) return true;
  Buffer copy;
  if (!copy.allocate(data_.size())) {
    return failure.in_file(PENSTOCK_OUT_OF_MEMORY, "no memory for %zu bytes of tensors", data_.size());
  }
  std::memcpy(copy.data(), data_.data(), data_.size());
  data_ = {reinterpret_cast<const char*>(copy.data()), data_.size()};
  own_ = std::move(copy);
  content_ = {};
  return true;
}

std::optional<std::size_t> TensorFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {},
                                              [](const Tensor& tensor) -> std::string_view { return tensor.name; });
  if (found == tensors_.end() || found->name != name) return std::nullopt;
  return static_cast<std::size_t>(found - tensors_.begin());
}

const char* TensorFile::values(std::string_view name, std::string_view type, const std::vector<Index>& shape,
                               Index element, Failure& failure) const {
  const std::optional<std::size_t> found = find(name);
  if (!found) {
    failure.in_file(PENSTOCK_INCOMPATIBLE, "no tensor %s", Quoted(name).c_str());
    return nullptr;
  }
  const Tensor& tensor = tensors_[*found];
  if (tensor.type != type || tensor.shape != shape) {
    failure.in_file(PENSTOCK_INCOMPATIBLE, "tensor %s is %.*s [%s], not %.*s [%s]", Quoted(name).c_str(),
                    static_cast<int>(tensor.type.size()), tensor.type.data(), text_of(tensor.shape).c_str(),
                    static_cast<int>(type.size()), type.data(), text_of(shape).c_str());
    return nullptr;
  }
  if (tensor.begin % element != 0) {
    failure.in_file(PENSTOCK_UNSUPPORTED, "tensor %s begins inside a float: save the model again with Penstock",
                    Quoted(name).c_str());
    return nullptr;
  }
  return data_.data() + tensor.begin;
}

const std::int8_t* TensorFile::int8(std::string_view name, const std::vector<Index>& shape, Failure& failure) const {
  const auto* const found = reinterpret_cast<const std::int8_t*>(values(name, "I8", shape, 1, failure));
  if (found == nullptr ||
      std::find(found, found + bytes_of(shape, 1), std::int8_t{-128}) == found + bytes_of(shape, 1)) {
    return found;
  }
  failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s holds -128; weights of int8 are -127 to 127", Quoted(name).c_str());
  return nullptr;
}

const float* TensorFile::floats(std::string_view name, const std::vector<Index>& shape, Failure& failure) const {
  constexpr auto size = static_cast<Index>(sizeof(float));
  const auto* const found = reinterpret_cast<const float*>(values(name, "F32", shape, size, failure));
  if (found == nullptr) return nullptr;
  std::uint32_t worst = 0;
  for (Index i = 0; i < bytes_of(shape, size) / size; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, found + i, sizeof(bits));
    worst |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  }
  if (worst == 0) return found;
  failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s holds values that are not finite", Quoted(name).c_str());
  return nullptr;
}

}  // namespace penstock::runtime
