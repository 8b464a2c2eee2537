#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace penstock {

/// "1 row", "12 rows": of a noun whose plural is regular.
template <std::integral Number>
std::string counted(Number count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace penstock
