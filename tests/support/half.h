#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plan/gpu/scan.h"

namespace penstock::test {

/// Rounds to the nearest number of a format with `fraction` stored bits and exponents down to `least` (of the smallest
/// normal number), ties to even; numbers too large for the format are not expected.
inline double round_to(double x, int fraction, int least) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const double unit = std::ldexp(1.0, exponent - fraction);
  return std::nearbyint(x / unit) * unit;
}

inline double rounded(double x, plan::Storage storage) {
  if (storage == plan::Storage::f32) return static_cast<float>(x);
  return storage == plan::Storage::bf16 ? round_to(x, 7, -126) : round_to(x, 10, -14);
}

/// Half a unit in the last place, relative.
inline double half_unit(plan::Storage storage) {
  return storage == plan::Storage::f32 ? 0x1p-24 : storage == plan::Storage::bf16 ? 0x1p-8 : 0x1p-11;
}

/// Bits of a number that rounded() has made fit.
inline std::uint16_t half_bits(double x, plan::Storage storage) {
  if (storage == plan::Storage::bf16) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
  }
  const auto half = static_cast<_Float16>(x);
  std::uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

inline double half_value(std::uint16_t bits, plan::Storage storage) {
  if (storage == plan::Storage::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  _Float16 half = 0;
  std::memcpy(&half, &bits, sizeof bits);
  return static_cast<double>(half);
}

/// Numbers as they lie in memory.
inline std::vector<std::uint8_t> to_storage(const std::vector<double>& values, plan::Storage storage) {
  const std::size_t size = static_cast<std::size_t>(plan::size_of(storage));
  std::vector<std::uint8_t> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto single = static_cast<float>(values[i]);
    const std::uint16_t half = storage == plan::Storage::f32 ? 0 : half_bits(values[i], storage);
    std::memcpy(&bytes[i * size], storage == plan::Storage::f32 ? static_cast<const void*>(&single) : &half, size);
  }
  return bytes;
}

inline std::vector<double> from_storage(const std::vector<std::uint8_t>& bytes, plan::Storage storage) {
  const std::size_t size = static_cast<std::size_t>(plan::size_of(storage));
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float single = 0;
    std::uint16_t half = 0;
    std::memcpy(storage == plan::Storage::f32 ? static_cast<void*>(&single) : &half, &bytes[i * size], size);
    values[i] = storage == plan::Storage::f32 ? static_cast<double>(single) : half_value(half, storage);
  }
  return values;
}

}  // namespace penstock::test
