#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// Most axes of a tensor, and most bytes of one.
constexpr std::size_t kMostAxes = 12;
constexpr Index kMostBytes = Index{1} << 36;

/// Most branches that lie in each other.
constexpr int kMostDepth = 32;

std::size_t size_of(Type type);
std::string_view name_of(Type type);
inline bool is_real(Type type) { return type == Type::f32 || type == Type::f64; }

/// "[2, 3]".
std::string text_of(const Shape& shape);
std::string text_of(Index number);

/// Returns a Status if an extent is negative, or there are too many axes or elements.
Status check_shape(Type type, const Shape& shape);
/// Product of the extents [first, last) of a shape that has been checked.
Index elements(const Shape& shape, std::size_t first = 0, std::size_t last = kMostAxes);
inline std::size_t bytes_of(Type type, const Shape& shape) {
  return static_cast<std::size_t>(elements(shape)) * size_of(type);
}

/// Reads or writes one element of any type; integers keep all digits in the one, reals in the other.
Index integer_at(Type type, const std::byte* data, Index i);
double real_at(Type type, const std::byte* data, Index i);
void set_integer(Type type, std::byte* data, Index i, Index value);
void set_real(Type type, std::byte* data, Index i, double value);
/// y [n] = x [n], as Cast has it: reals lose their fraction, booleans are whether x is not 0.
void convert(Type from, const std::byte* x, Type to, std::byte* y, Index n);

/// Sets `axis` in [-rank, rank) to that counted from the front.
bool normalise_axis(Index& axis, Index rank);
/// The shape that tensors of both shapes are broadcast to; false if there is none.
bool broadcast(const Shape& a, const Shape& b, Shape& both);

}  // namespace penstock::network

/// Returns from a function if a call in it fails.
#define PENSTOCK_TRY(call)                                                     \
  do {                                                                         \
    if (::penstock::network::Status tried = (call); !tried.ok()) return tried; \
  } while (false)
