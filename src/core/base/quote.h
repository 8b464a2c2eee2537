#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace penstock {

/// Text from a file that nobody has vetted, fit for a one-line message: in double quotes, control characters and
/// invalid UTF-8 escaped, at most 60 bytes of it.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 60;
  if (text.size() <= limit) return fmt::format("{:?}", text);
  std::size_t end = limit;
  while (end > limit - 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return fmt::format("{:?}...", text.substr(0, end));
}

}  // namespace penstock
