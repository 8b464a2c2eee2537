#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace penstock {

/// ASCII letters in lower case, everything else as it is.
inline std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

}  // namespace penstock
