#include "answers/written_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

namespace penstock::cli {
namespace {

/// A field of a CSV row, in quotes where it needs them.
std::string csv_field(std::string_view text, char delimiter) {
  const bool of_blanks = delimiter == ' ';
  const bool plain = !(of_blanks && text.empty()) && std::none_of(text.begin(), text.end(), [&](char c) {
    return c == delimiter || c == '"' || c == '\n' || c == '\r' || (of_blanks && c == '\t');
  });
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string number_text(double value, const Column& column) {
  const double normal = column.normal(value);
  const auto moved_by = [&](double step) { return std::abs(column.raw(normal + step) - value); };
  constexpr double little = 1e-4;         // of what is usual, which nobody misses
  constexpr double half_digit = 0x1p-24;  // of a float
  const auto rounded = static_cast<float>(value);
  const double missed = moved_by(std::max(little, half_digit * std::abs(normal)));
  if (std::abs(static_cast<double>(rounded) - value) <= missed) return fmt::format("{}", rounded);
  // If a value is much larger than its changes, a float of its own would lose the digits that count.
  const double noise = moved_by(half_digit * std::max(1.0, std::abs(normal)));
  const double digits = std::ceil(std::log10(std::abs(value) / noise));
  constexpr double most = std::numeric_limits<double>::max_digits10;
  return fmt::format("{:.{}g}", value, digits < most ? static_cast<int>(digits) : static_cast<int>(most));
}

std::string csv_row(std::span<const std::string> fields, char delimiter) {
  std::vector<std::string> quoted;
  for (const std::string& field : fields) quoted.push_back(csv_field(field, delimiter));
  return fmt::format("{}\n", fmt::join(quoted, std::string_view(&delimiter, 1)));
}

}  // namespace penstock::cli
