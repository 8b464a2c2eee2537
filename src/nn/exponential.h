#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace penstock::nn {

inline double exponential(double x) { return std::exp(x); }

/// e^x within 2 ULP, clamped to e^-87.33 .. e^88, for a loop that the compiler can vectorise, which a call to std::exp
/// prevents. NaN passes. The polynomial is the one of the cells' prelude.
inline float exponential(float x) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = x < -87.33f ? -87.33f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + round;
  const float n = shifted - round;
  float r = x - n * 0.693145751953125f;
  r = r - n * 1.42860682e-6f;
  float q = r * 1.3926926737453551e-3f + 8.363774046301842e-3f;
  q = r * q + 4.166654869914055e-2f;
  q = r * q + 1.6666573286056519e-1f;
  q = r * q + 0.5f;
  const float p = r * r * q + r;
  const float scale = std::bit_cast<float>((std::bit_cast<std::int32_t>(shifted) << 23) + (127 << 23));
  return scale * p + scale;
}

}  // namespace penstock::nn
