#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace penstock::test {

/// To the nearest bfloat16, ties to even, by arithmetic alone: 8 bits of precision are left.
inline float rounded(float x) {
  if (x == 0.0f || !std::isfinite(x)) return x;
  int exponent = 0;
  const double mantissa = std::frexp(double{x}, &exponent);  // in [0.5, 1)
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8));
}

/// A number that lies in memory as a bfloat16.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  explicit Bf16(double x)
      : bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded(static_cast<float>(x))) >> 16)) {}
  // Implicit, like conversions of built-in halves. NOLINTNEXTLINE(google-explicit-constructor)
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <class To, class Values>
std::vector<To> converted(const Values& values) {
  std::vector<To> result;
  result.reserve(values.size());
  for (const auto& x : values) result.push_back(static_cast<To>(x));
  return result;
}

}  // namespace penstock::test
