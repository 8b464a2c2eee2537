#include "runtime/tensor_file.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/checksum.h"

namespace penstock::runtime {

namespace {

constexpr std::string_view kDescription = "penstock", kNetwork = "penstock.network", kChecksum = "penstock.checksum",
                           kChecked = "penstock.checked";

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
  safetensors::Header header;
  const std::string problem = safetensors::read_header(content_, header);
  if (!problem.empty()) return failure.in_file(PENSTOCK_BAD_INPUT, "%s", problem.c_str());
  for (auto& [key, text] : header.metadata) {
    auto* const kept = key == kDescription ? &description_
                       : key == kNetwork   ? &network_
                       : key == kChecksum  ? &carried_
                                           : nullptr;
    if (kept != nullptr && kept->has_value()) {
      return failure.in_file(PENSTOCK_BAD_INPUT, "__metadata__: %s appears twice", Quoted(key).c_str());
    }
    if (kept != nullptr) *kept = std::move(text);
    says_checked_ = says_checked_ || key == kChecked;
  }
  tensors_ = std::move(header.tensors);
  data_ = content_.substr(safetensors::length_bytes + header.length);
  return check_sum(content_.substr(safetensors::length_bytes, header.length), failure) && align(failure);
}

bool TensorFile::check_sum(std::string_view header, Failure& failure) {
  has_checksum_ = carried_.has_value();
  if (!has_checksum_) {
    if (!says_checked_) return true;
    return failure.in_file(PENSTOCK_BAD_INPUT, "damaged: it says that it carries a checksum, and there is none");
  }
  const std::string before = "\"" + std::string(kChecksum) + "\":\"";
  const std::size_t found = header.find(before);
  const std::size_t place = safetensors::length_bytes + found + before.size();
  char digits[24] = "none";
  if (found != header.npos && place + checksum_digits <= safetensors::length_bytes + header.size() &&
      content_.size() > 240) {
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
                                              [](const TensorInfo& tensor) -> std::string_view { return tensor.name; });
  if (found == tensors_.end() || found->name != name) return std::nullopt;
  return static_cast<std::size_t>(found - tensors_.begin());
}

const char* TensorFile::values(std::string_view name, DType dtype, const std::vector<Index>& shape,
                               Failure& failure) const {
  const std::optional<std::size_t> found = find(name);
  if (!found) {
    failure.in_file(PENSTOCK_INCOMPATIBLE, "no tensor %s", Quoted(name).c_str());
    return nullptr;
  }
  const TensorInfo& tensor = tensors_[*found];
  if (tensor.dtype != dtype || tensor.shape != shape) {
    failure.in_file(PENSTOCK_INCOMPATIBLE, "tensor %s is %s [%s], not %s [%s]", Quoted(name).c_str(),
                    to_string(tensor.dtype).data(), safetensors::text_of(tensor.shape).c_str(), to_string(dtype).data(),
                    safetensors::text_of(shape).c_str());
    return nullptr;
  }
  if (tensor.offset % size_of(dtype) != 0) {
    failure.in_file(PENSTOCK_UNSUPPORTED, "tensor %s begins inside a float: save the model again with Penstock",
                    Quoted(name).c_str());
    return nullptr;
  }
  return data_.data() + tensor.offset;
}

const std::int8_t* TensorFile::int8(std::string_view name, const std::vector<Index>& shape, Failure& failure) const {
  const auto* const found = reinterpret_cast<const std::int8_t*>(values(name, DType::i8, shape, failure));
  const Index count = safetensors::count_of(shape);
  if (found == nullptr || std::find(found, found + count, std::int8_t{-128}) == found + count) return found;
  failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s holds -128; weights of int8 are -127 to 127", Quoted(name).c_str());
  return nullptr;
}

const float* TensorFile::floats(std::string_view name, const std::vector<Index>& shape, Failure& failure) const {
  const auto* const found = reinterpret_cast<const float*>(values(name, DType::f32, shape, failure));
  if (found == nullptr) return nullptr;
  std::uint32_t worst = 0;
  for (Index i = 0; i < safetensors::count_of(shape); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, found + i, sizeof(bits));
    worst |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  }
  if (worst == 0) return found;
  failure.in_file(PENSTOCK_BAD_INPUT, "tensor %s holds values that are not finite", Quoted(name).c_str());
  return nullptr;
}

}  // namespace penstock::runtime
