#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace penstock {

/// Returns the value of an IEEE 754 binary16 number. The sign and the payload of a NaN stay.
inline float float_of_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = std::bit_cast<float>(0x7f800000U | static_cast<std::uint32_t>(fraction) << 13);
  } else {
    value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                          : std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace penstock
