#include "ops/cuda_types.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace penstock {
namespace {

constexpr std::array<CudaType, 3> kTypes = {CudaType::f32, CudaType::bf16, CudaType::f16};

std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // quiet, whatever the low half held
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Ten stored bits of mantissa; below 2^-14 in units of 2^-24.
std::uint16_t f16_bits(float value) {
  constexpr float overflow = 65520.0f;  // rounds to 2^16
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= overflow) return sign | 0x7c00;
  const int exponent = size == 0 ? -14 : std::max(std::ilogb(size), -14);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign + ((exponent + 14) << 10) + units);  // 2048 units carry into the exponent
}

}  // namespace

std::string_view to_string(CudaType type) { return to_string(ops::storage_of(type)); }
std::string_view to_string(CudaRegime regime) { return to_string(ops::regime_of(regime)); }

CudaType parse_cuda_type(std::string_view text) {
  for (const CudaType type : kTypes) {
    if (to_string(type) == text) return type;
  }
  fail(ErrorCode::invalid_argument, "type must be one of f32, bf16, f16, not '{}'", text);
}

CudaRegime parse_cuda_regime(std::string_view text) {
  const plan::Regime asked = plan::parse_regime(text);
  for (const CudaRegime regime : {CudaRegime::direct, CudaRegime::fused, CudaRegime::scan}) {
    if (ops::regime_of(regime) == asked) return regime;
  }
  return CudaRegime::automatic;
}

namespace ops {

std::vector<std::uint8_t> stored_as(CudaType type, std::span<const float> values) {
  const auto size = static_cast<std::size_t>(plan::size_of(storage_of(type)));
  std::vector<std::uint8_t> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = type == CudaType::bf16 ? bf16_bits(values[i]) : f16_bits(values[i]);
    const void* from = type == CudaType::f32 ? static_cast<const void*>(&values[i]) : &half;
    std::memcpy(&bytes[i * size], from, size);
  }
  return bytes;
}

}  // namespace ops
}  // namespace penstock
