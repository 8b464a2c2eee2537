#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/quote.h"

namespace penstock {

/// The names of an enumeration's values, from value 0 on.
template <std::size_t count>
using Names = std::array<std::string_view, count>;

/// Returns the name of a value; "?" for one that is not of the enumeration.
template <class Enum, std::size_t count>
constexpr std::string_view name_of(const Names<count>& names, Enum value) {
  const auto i = static_cast<std::size_t>(value);
  return i < count ? names[i] : "?";
}

/// Returns the value of a name. Throws Error(invalid_argument) that lists the names; `what` is the argument's.
template <class Enum, std::size_t count>
Enum parse_name(std::string_view what, const Names<count>& names, std::string_view text) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) fail_choice(what, text, {names.begin(), names.end()});
  return static_cast<Enum>(found - names.begin());
}

}  // namespace penstock
