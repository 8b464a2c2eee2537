#pragma once

#include <fmt/format.h>

#include <string_view>
#include <type_traits>

#include "penstock/error.h"

namespace penstock {

/// Throws Error(code) with a formatted one-line message. Name the argument, what it was and what is allowed:
///   fail(ErrorCode::invalid_argument, "hidden_size must be at least 1, not {}", h);
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// fail(invalid_argument, ...) unless the condition holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

/// Requires that `value`, an enumeration's, is one of its values: 0 to `last`.
template <class Enum>
void check_enum(std::string_view name, Enum value, Enum last) {
  const auto number = static_cast<long long>(static_cast<std::underlying_type_t<Enum>>(value));
  const auto most = static_cast<long long>(static_cast<std::underlying_type_t<Enum>>(last));
  require(number >= 0 && number <= most, "{} must be a value of its enumeration, 0 to {}, not {}", name, most, number);
}

}  // namespace penstock
