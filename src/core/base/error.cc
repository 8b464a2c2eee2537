#include "penstock/error.h"

#include <fmt/ranges.h>

#include "base/check.h"

namespace penstock {

void fail_choice(std::string_view argument, std::string_view value, std::vector<std::string> choices) {
  std::string allowed = fmt::format("one of {}", fmt::join(choices, ", "));
  fail_argument({.argument = std::string(argument),
                 .value = std::string(value),
                 .allowed = std::move(allowed),
                 .choices = std::move(choices)},
                in_quotes(value));
}

}  // namespace penstock
