#include "options/sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "options/options.h"
#include "terminal/describe.h"
#include "terminal/units.h"

namespace penstock::cli {

std::vector<Index> parse_sizes(const std::string& text, const std::string& names) {
  std::vector<Index> sizes;
  std::size_t at = 0;
  while (at != std::string::npos) {
    const std::size_t cross = text.find('x', at);
    parse_value("--shape", text.substr(at, cross == std::string::npos ? cross : cross - at), sizes.emplace_back());
    at = cross == std::string::npos ? cross : cross + 1;
  }
  const auto wanted = static_cast<std::size_t>(std::count(names.begin(), names.end(), 'x')) + 1;
  if (sizes.size() != wanted) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--shape must be {}, not '{}'", names, printable(text)));
  }
  return sizes;
}

}  // namespace penstock::cli
