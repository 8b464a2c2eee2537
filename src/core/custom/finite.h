#pragma once

#include <limits>

namespace penstock::custom {

/// Returns whether a number of a cell is finite in 32 bits, in which layers compute and files keep parameters.
constexpr bool is_finite_float(double value) {
  return value >= -std::numeric_limits<float>::max() && value <= std::numeric_limits<float>::max();
}

}  // namespace penstock::custom
