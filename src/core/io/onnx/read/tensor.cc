#include "io/onnx/read/tensor.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "base/check.h"
#include "base/half.h"
#include "network/tensor.h"

namespace penstock::io::onnx {
namespace {

using network::Constant;
using network::Type;

// Models beyond this are not what runs on a stream, and a damaged size must not use up the memory.
constexpr Index kMostTensorBytes = Index{4} << 30;

struct Element {
  std::int64_t number;
  Type type;
  Index stored;  ///< Bytes of an element in a file.
};
constexpr Element kElements[] = {
    {kFloat, Type::f32, 4},  {kUint8, Type::u8, 1},    {kInt8, Type::i8, 1},
    {kInt32, Type::i32, 4},  {kInt64, Type::i64, 8},   {kBool, Type::boolean, 1},
    {kDouble, Type::f64, 8}, {kFloat16, Type::f32, 2}, {kBfloat16, Type::f32, 2},
};

const char* name_of_type(std::int64_t number) {
  constexpr const char* names[] = {"undefined", "float",  "uint8",     "int8",       "uint16",  "int16",
                                   "int32",     "int64",  "string",    "bool",       "float16", "double",
                                   "uint32",    "uint64", "complex64", "complex128", "bfloat16"};
  constexpr auto count = static_cast<std::int64_t>(std::size(names));
  return number >= 0 && number < count ? names[number] : "of less than 8 bits";
}

const Element& element_of(std::int64_t number, const std::string& what) {
  const auto* const found = std::ranges::find(kElements, number, &Element::number);
  if (found == std::end(kElements)) {
    fail(ErrorCode::unsupported,
         "{} has the type {}, expected float, double, float16, bfloat16, int8, uint8, int32, int64 or bool", what,
         name_of_type(number));
  }
  return *found;
}

float from_two_bytes(std::uint16_t bits, std::int64_t type) {
  return type == kFloat16 ? float_of_half(bits) : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Constant allocate(Type type, network::Shape shape, std::size_t bytes) {
  constexpr std::align_val_t line{64};
  auto* const memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), line));
  std::shared_ptr<std::byte> owner(memory, [](std::byte* it) { ::operator delete (it, std::align_val_t{64}); });
  return {type, std::move(shape), {memory, bytes}, std::move(owner)};
}

std::byte* memory_of(Constant& constant) { return const_cast<std::byte*>(constant.bytes.data()); }

/// Returns the number of elements of a tensor.
Index count_elements(const TensorMessage& tensor, const Element& element, const std::string& what, Source& source) {
  Index count = 1;
  const auto most = std::max<Index>(kMostTensorBytes / std::max<Index>(element.stored, 4), 1);
  for (const Index extent : tensor.dims) {
    if (extent < 0) fail(ErrorCode::bad_input, "{} has the shape [{}]", what, fmt::join(tensor.dims, ", "));
    if (extent > 0 && count > most / extent) {
      fail(ErrorCode::bad_input, "{} has the shape [{}], of more than {} bytes", what, fmt::join(tensor.dims, ", "),
           kMostTensorBytes);
    }
    count *= extent;
  }
  source.bytes += count * std::max<Index>(element.stored, 4);
  if (source.bytes > kMostTensorBytes) {
    fail(ErrorCode::unsupported, "{}: its tensors take more than {} bytes together", source.name, kMostTensorBytes);
  }
  return count;
}

/// Writes `count` elements as they lie in a file, little-endian, to a constant.
Constant from_raw(const TensorMessage& tensor, const Element& element, Index count, const char* raw) {
  const auto size = static_cast<std::size_t>(count);
  if (element.stored != 2) {
    const std::size_t bytes = size * static_cast<std::size_t>(element.stored);
    Constant result = allocate(element.type, tensor.dims, bytes);
    if (bytes != 0) std::memcpy(memory_of(result), raw, bytes);
    if (element.type == Type::boolean) {
      for (std::size_t i = 0; i < size; ++i) memory_of(result)[i] = std::byte{raw[i] != 0};
    }
    return result;
  }
  Constant result = allocate(Type::f32, tensor.dims, size * sizeof(float));
  for (std::size_t i = 0; i < size; ++i) {
    const auto low = static_cast<unsigned char>(raw[2 * i]), high = static_cast<unsigned char>(raw[2 * i + 1]);
    const float value = from_two_bytes(static_cast<std::uint16_t>(low | high << 8), tensor.type);
    std::memcpy(memory_of(result) + i * sizeof(float), &value, sizeof(float));
  }
  return result;
}

template <class Stored, class From>
Constant from_values(const TensorMessage& tensor, Type type, const std::vector<From>& values) {
  Constant result = allocate(type, tensor.dims, values.size() * sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<Stored>(values[i]);
    std::memcpy(memory_of(result) + i * sizeof(Stored), &value, sizeof(Stored));
  }
  return result;
}

Constant from_fields(const TensorMessage& tensor, const Element& element, Index count, const std::string& what) {
  const std::size_t found = element.type == Type::f64                          ? tensor.doubles.size()
                            : element.type == Type::f32 && element.stored == 4 ? tensor.floats.size()
                                                                               : tensor.integers.size();
  if (found != static_cast<std::size_t>(count)) {
    fail(ErrorCode::bad_input, "{} has {} values, expected {} for its shape [{}]", what, found, count,
         fmt::join(tensor.dims, ", "));
  }
  switch (element.type) {
    case Type::f64:
      return from_values<double>(tensor, Type::f64, tensor.doubles);
    case Type::i8:
      return from_values<std::int8_t>(tensor, Type::i8, tensor.integers);
    case Type::u8:
      return from_values<std::uint8_t>(tensor, Type::u8, tensor.integers);
    case Type::i32:
      return from_values<std::int32_t>(tensor, Type::i32, tensor.integers);
    case Type::i64:
      return from_values<std::int64_t>(tensor, Type::i64, tensor.integers);
    case Type::boolean:
      return from_values<bool>(tensor, Type::boolean, tensor.integers);
    case Type::f32:
      break;
  }
  if (element.stored == 4) return from_values<float>(tensor, Type::f32, tensor.floats);
  std::vector<float> values;
  values.reserve(tensor.integers.size());
  for (const std::int64_t bits : tensor.integers) {
    values.push_back(from_two_bytes(static_cast<std::uint16_t>(bits), tensor.type));
  }
  return from_values<float>(tensor, Type::f32, values);
}

/// Reads a tensor from a file in the model's folder or below, not behind a link.
std::string read_external(const TensorMessage& tensor, Index bytes, const std::string& what, const Source& source) {
  namespace fs = std::filesystem;
  const auto field = [&](std::string_view key) {
    const auto found = std::ranges::find(tensor.places, key, [](const auto& each) { return each.first; });
    return found == tensor.places.end() ? std::string_view() : found->second;
  };
  const auto number = [&](std::string_view key, Index otherwise) {
    const std::string_view text = field(key);
    Index value = text.empty() ? otherwise : -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return text.empty() || (error == std::errc() && end == text.data() + text.size()) ? value : Index{-1};
  };
  const std::string location(field("location"));
  if (source.folder.empty()) {
    fail(ErrorCode::unsupported, "{} lies in the file {}: a model in memory cannot have such; import it by its path",
         what, in_quotes(location));
  }
  const fs::path relative(location);
  std::error_code failed;
  const fs::path folder = fs::canonical(source.folder, failed), place = folder / relative;
  const bool climbs = std::ranges::find(relative, fs::path("..")) != relative.end();
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute() || climbs) {
    fail(ErrorCode::bad_input, "{} lies in {}, expected the name of a file in the model's folder", what,
         in_quotes(location));
  }
  if (!fs::is_regular_file(place, failed)) {
    fail(ErrorCode::bad_input, "{} lies in {}, and there is no such file in the model's folder: put it there", what,
         in_quotes(location));
  }
  if (fs::canonical(place, failed) != place.lexically_normal()) {
    fail(ErrorCode::bad_input, "{} lies in {}, which is behind a link: put the file itself there", what,
         in_quotes(location));
  }
  const auto size = static_cast<Index>(fs::file_size(place, failed));
  const Index offset = number("offset", 0), length = number("length", bytes);
  if (failed || offset < 0 || length != bytes || offset > size || bytes > size - offset) {
    fail(ErrorCode::bad_input, "{} takes {} bytes, and the model says {} at {} of the {} of {}", what, bytes, length,
         offset, size, in_quotes(location));
  }
  std::string content(static_cast<std::size_t>(bytes), '\0');
  std::ifstream file(place, std::ios::binary);
  file.seekg(offset);
  file.read(content.data(), bytes);
  if (!file) fail(ErrorCode::io_failure, "cannot read '{}'", place.string());
  return content;
}

}  // namespace

Type type_of(std::int64_t number, const std::string& what) { return element_of(number, what).type; }

bool is_known_type(std::int64_t number) {
  return std::ranges::find(kElements, number, &Element::number) != std::end(kElements);
}

Constant to_constant(const TensorMessage& tensor, Source& source) {
  const std::string what = fmt::format("{}: tensor {}", source.name, in_quotes(tensor.name));
  if (tensor.segmented) fail(ErrorCode::unsupported, "{} is stored in segments", what);
  const Element& element = element_of(tensor.type, what);
  const Index count = count_elements(tensor, element, what, source), bytes = count * element.stored;
  if (tensor.external) return from_raw(tensor, element, count, read_external(tensor, bytes, what, source).data());
  if (!tensor.has_raw) return from_fields(tensor, element, count, what);
  if (tensor.raw.size() != static_cast<std::size_t>(bytes)) {
    fail(ErrorCode::bad_input, "{} has {} bytes, expected {} for its shape [{}]", what, tensor.raw.size(), bytes,
         fmt::join(tensor.dims, ", "));
  }
  return from_raw(tensor, element, count, tensor.raw.data());
}

bool is_zero(const Constant& constant) {
  const Index count = network::elements(constant.shape);
  for (Index i = 0; i < count; ++i) {
    if (network::real_at(constant.type, constant.bytes.data(), i) != 0) return false;
  }
  return true;
}

Constant make_constant(Type type, network::Shape shape, std::span<const std::byte> bytes) {
  Constant result = allocate(type, std::move(shape), bytes.size());
  if (!bytes.empty()) std::memcpy(memory_of(result), bytes.data(), bytes.size());
  return result;
}

Constant make_integers(network::Shape shape, std::span<const Index> values) {
  return make_constant(Type::i64, std::move(shape), std::as_bytes(values));
}

Constant make_number(float value) { return make_constant(Type::f32, {}, std::as_bytes(std::span(&value, 1))); }

}  // namespace penstock::io::onnx
