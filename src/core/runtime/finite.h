#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace penstock::runtime {

inline bool is_finite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) != 0x7f800000u;
}

inline bool all_finite(const float* values, std::size_t count) {
  return std::all_of(values, values + count, is_finite);
}

}  // namespace penstock::runtime
