#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace penstock {

/// How a number lies in memory.
enum class DType { f32, f64, bf16, f16, i32, i64, u8 };

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

std::string_view to_string(DType type);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  return DType::f32;
}

/// Calls visit(float()) or visit(double()) for the types that the CPU computes in.
template <class Visit>
auto with_real(DType type, const Visit& visit) {
  if (type == DType::f64) return visit(double());
  require(type == DType::f32, "the CPU computes in f32 or f64, not {}", to_string(type));
  return visit(float());
}

}  // namespace penstock
