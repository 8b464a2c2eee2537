#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock {

/// "1 row", "12 rows": of a noun whose plural is regular.
inline std::string counted(Index count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}
inline std::string counted(std::size_t count, std::string_view noun) {
  return counted(static_cast<Index>(count), noun);
}

}  // namespace penstock
