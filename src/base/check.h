#pragma once

#include <fmt/format.h>

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

}  // namespace penstock
