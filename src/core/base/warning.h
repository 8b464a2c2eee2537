#pragma once

#include <fmt/format.h>

#include <string>

namespace penstock {

/// Prints "penstock: warning: TEXT" to standard error, once a process for each text: for what went wrong without making
/// any result wrong, such as a cache that cannot be written.
void print_warning(const std::string& text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  print_warning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock
