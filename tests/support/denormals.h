#pragma once

#include "base/denormals.h"

namespace penstock::test {

constexpr float denormal = 1e-40f;

/// Returns whether this thread treats denormal numbers as zeros.
inline bool counts_denormals_as_zeros() {
  volatile float x = denormal;
  volatile float doubled = x + x;
  return doubled == 0.0f;
}

/// Returns whether this processor has such a mode.
inline bool can_count_denormals_as_zeros() {
  const WithDenormals as_zeros(DenormalMode::zeros());
  return counts_denormals_as_zeros();
}

}  // namespace penstock::test
