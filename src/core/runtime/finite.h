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

/// Returns whether is(value) holds for all values. Where there are several, it has no branch for each: it nearly always
/// does.
template <class Is>
bool holds_for_all(const float* values, std::size_t count, const Is& is) {
  if (count == 1) return is(*values);
  int others = 0;
  for (std::size_t i = 0; i < count; ++i) others |= static_cast<int>(!is(values[i]));
  return others == 0;
}

inline bool all_finite(const float* values, std::size_t count) {
  return holds_for_all(values, count, [](float value) { return is_finite(value); });
}

/// Largest magnitude of a feature that models read (Column::furthest).
constexpr float kFurthest = 1e12f;

inline bool is_near(float value) { return value >= -kFurthest && value <= kFurthest; }

inline bool all_near(const float* features, std::size_t count) { return holds_for_all(features, count, is_near); }

}  // namespace penstock::runtime
