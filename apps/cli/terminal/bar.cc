#include "terminal/bar.h"

#include <algorithm>

namespace penstock::cli {

std::string bar(double fraction, std::size_t width, bool utf8) {
  const double cells = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width);
  auto full = static_cast<std::size_t>(cells);
  std::string text;
  if (!utf8) {
    text.assign(full, '#');
    text.resize(width, '.');
    return "[" + text + "]";
  }
  constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (std::size_t i = 0; i < full; ++i) text += "█";
  const auto part = static_cast<std::size_t>((cells - static_cast<double>(full)) * 8.0);
  text += eighths[part];
  if (part > 0) ++full;
  return "▕" + text + std::string(width - full, ' ') + "▏";
}

}  // namespace penstock::cli
