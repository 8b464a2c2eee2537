#include "network/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock::network {

namespace {

template <class T>
T load(const std::byte* data, Index i) {
  T value;
  std::memcpy(&value, data + i * static_cast<Index>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* data, Index i, T value) {
  std::memcpy(data + i * static_cast<Index>(sizeof(T)), &value, sizeof(T));
}

/// The nearest integer towards 0; what no integer holds becomes the nearest end, NaN 0.
Index to_integer(double x) {
  if (x != x) return 0;
  if (x >= 9223372036854775807.0) return std::numeric_limits<Index>::max();
  if (x <= -9223372036854775808.0) return std::numeric_limits<Index>::min();
  return static_cast<Index>(x);
}

}  // namespace

std::size_t size_of(Type type) {
  switch (type) {
    case Type::f64:
    case Type::i64:
      return 8;
    case Type::f32:
    case Type::i32:
      return 4;
    default:
      return 1;
  }
}

std::string_view name_of(Type type) {
  constexpr std::string_view names[] = {"float", "double", "int8", "uint8", "int32", "int64", "bool"};
  return names[static_cast<int>(type)];
}

std::string text_of(Index number) { return std::to_string(number); }

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Status check_shape(Type type, const Shape& shape) {
  if (shape.size() > kMostAxes) {
    return Status::unsupported("a tensor has " + std::to_string(shape.size()) + " axes; at most " +
                               std::to_string(kMostAxes) + " are supported");
  }
  Index most = kMostBytes / static_cast<Index>(size_of(type));
  for (const Index extent : shape) {
    if (extent < 0) return Status::bad_input("a tensor of shape " + text_of(shape) + " has a negative extent");
    most /= std::max<Index>(extent, 1);
  }
  // A tensor without elements may have any other extents, but their product has to be a number all the same.
  if (most == 0) {
    return Status::unsupported("a tensor of shape " + text_of(shape) + " has more than " +
                               std::to_string(kMostBytes >> 30) + " GiB");
  }
  return {};
}

Index elements(const Shape& shape, std::size_t first, std::size_t last) {
  Index count = 1;
  for (std::size_t i = first; i < std::min(last, shape.size()); ++i) count *= shape[i];
  return count;
}

Index integer_at(Type type, const std::byte* data, Index i) {
  switch (type) {
    case Type::f32:
      return to_integer(load<float>(data, i));
    case Type::f64:
      return to_integer(load<double>(data, i));
    case Type::i8:
      return load<std::int8_t>(data, i);
    case Type::i32:
      return load<std::int32_t>(data, i);
    case Type::i64:
      return load<std::int64_t>(data, i);
    default:
      return load<std::uint8_t>(data, i);
  }
}

double real_at(Type type, const std::byte* data, Index i) {
  if (type == Type::f32) return load<float>(data, i);
  if (type == Type::f64) return load<double>(data, i);
  return static_cast<double>(integer_at(type, data, i));
}

void set_integer(Type type, std::byte* data, Index i, Index value) {
  switch (type) {
    case Type::f32:
      return store(data, i, static_cast<float>(value));
    case Type::f64:
      return store(data, i, static_cast<double>(value));
    case Type::i8:
      return store(data, i, static_cast<std::int8_t>(value));
    case Type::u8:
      return store(data, i, static_cast<std::uint8_t>(value));
    case Type::i32:
      return store(data, i, static_cast<std::int32_t>(value));
    case Type::i64:
      return store(data, i, value);
    case Type::boolean:
      return store(data, i, static_cast<std::uint8_t>(value != 0));
  }
}

void set_real(Type type, std::byte* data, Index i, double value) {
  if (type == Type::f32) return store(data, i, static_cast<float>(value));
  if (type == Type::f64) return store(data, i, value);
  if (type == Type::boolean) return store(data, i, static_cast<std::uint8_t>(value != 0));
  set_integer(type, data, i, to_integer(value));
}

namespace {

/// For the types that quantised networks convert most.
template <class From>
void to_floats(const std::byte* x, std::byte* y, Index n) {
  for (Index i = 0; i < n; ++i) store(y, i, static_cast<float>(load<From>(x, i)));
}

}  // namespace

void convert(Type from, const std::byte* x, Type to, std::byte* y, Index n) {
  if (from == to) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * size_of(to));
  } else if (to == Type::f32 && from == Type::u8) {
    to_floats<std::uint8_t>(x, y, n);
  } else if (to == Type::f32 && from == Type::i8) {
    to_floats<std::int8_t>(x, y, n);
  } else if (to == Type::f32 && from == Type::i32) {
    to_floats<std::int32_t>(x, y, n);
  } else if (to == Type::i32 && from == Type::f32) {
    for (Index i = 0; i < n; ++i) store(y, i, static_cast<std::int32_t>(to_integer(load<float>(x, i))));
  } else if (is_real(from)) {
    for (Index i = 0; i < n; ++i) set_real(to, y, i, real_at(from, x, i));
  } else {
    for (Index i = 0; i < n; ++i) set_integer(to, y, i, integer_at(from, x, i));
  }
}

bool normalise_axis(Index& axis, Index rank) {
  if (axis < -rank || axis >= rank) return false;
  if (axis < 0) axis += rank;
  return true;
}

bool broadcast(const Shape& a, const Shape& b, Shape& both) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const std::size_t skip = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    Index& extent = result[skip + i];
    if (extent == 1) {
      extent = shorter[i];
    } else if (shorter[i] != 1 && shorter[i] != extent) {
      return false;
    }
  }
  both = result;
  return true;
}

}  // namespace penstock::network
