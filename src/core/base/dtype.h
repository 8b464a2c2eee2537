#pragma once

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "penstock/tensor.h"

namespace penstock {

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
