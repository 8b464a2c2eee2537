#pragma once

#include <algorithm>
#include <string_view>

namespace penstock {

/// Text from a file that nobody has vetted, fit for a one-line message, without fmt and allocations: in double quotes,
/// everything but printable ASCII as '?', at most 40 bytes of it.
struct Quoted {
  explicit Quoted(std::string_view from) {
    constexpr std::size_t most = 40;
    static_assert(most + 6 <= sizeof(text));  // quotes, dots and the zero at the end
    char* to = text;
    *to++ = '"';
    for (const char c : from.substr(0, most)) *to++ = c >= ' ' && c <= '~' && c != '"' ? c : '?';
    *to++ = '"';
    if (from.size() > most) to = std::fill_n(to, 3, '.');
    *to = '\0';
  }
  const char* c_str() const { return text; }

  char text[48];
};

}  // namespace penstock
