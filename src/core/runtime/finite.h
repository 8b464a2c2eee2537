#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace penstock::runtime {

inline bool is_finite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) != 0x7f800000u;
}

/// Without a branch for each value, of which nearly all are finite.
inline bool all_finite(const float* values, std::size_t count) {
  int others = 0;
  for (std::size_t i = 0; i < count; ++i) others |= static_cast<int>(!is_finite(values[i]));
  return others == 0;
}

}  // namespace penstock::runtime
