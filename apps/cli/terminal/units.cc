#include "terminal/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

std::string scaled(double value, std::string_view unit) {
  constexpr std::array<const char*, 5> prefixes = {"", "k", "M", "G", "T"};
  constexpr double longest = 1e18;  // that the last prefix writes in a few digits
  if (!(value < longest)) return fmt::format("{:.3g} {}", value, unit);
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < prefixes.size()) {
    value /= 1000.0;
    ++prefix;
  }
  const int decimals = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, decimals, prefixes[prefix], unit);
}

bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

std::string with_commas(Index value) {
  std::string digits = fmt::format("{}", value);
  const Index first = digits.front() == '-' ? 1 : 0;
  for (Index i = static_cast<Index>(digits.size()) - 3; i > first; i -= 3)
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  return digits;
}

std::string whole_number(double value) {
  constexpr double exact = 9007199254740992.0;  // 2^53: whole numbers up to here have a double of their own
  if (!std::isfinite(value)) return "-";
  return std::abs(value) <= exact ? with_commas(static_cast<Index>(value)) : short_number(value);
}

std::string counted(Index count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

std::string byte_size(double bytes) { return scaled(bytes, "B"); }

std::string short_count(double value) {
  std::string text = scaled(value, "");
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string clock_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0 || seconds > 1e9) return "-";
  const auto whole = static_cast<Index>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size != 0.0 && (size < 1e-4 || size >= 1e6)) return fmt::format("{:.3e}", value);
  const int decimals = size >= 1000.0 ? 0 : size >= 100.0 ? 1 : size >= 10.0 ? 2 : size >= 0.1 || size == 0.0 ? 3 : 5;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string readable_byte(unsigned char byte) {
  constexpr std::string_view special = "\n\r\t'\\", letters = "nrt'\\";
  if (const auto place = special.find(static_cast<char>(byte)); place != special.npos) {
    return fmt::format("'\\{}'", letters[place]);
  }
  if (byte < 0x20 || byte >= 0x7f) return fmt::format("'\\x{:02x}'", byte);
  return fmt::format("'{}'", static_cast<char>(byte));
}

std::string shell_word(std::string_view text) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./,:=@%+").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), harmless)) return std::string(text);
  if (std::string shown = without_controls(text); shown != text) {  // $'...' of bash and zsh, whose "\xNN" is ours
    std::string word = "$'";
    for (const char c : text) word += c == '\'' || c == '\\' ? fmt::format("\\{}", c) : without_controls({&c, 1});
    return word + "'";
  }
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string without_controls(std::string_view text) {
  const bool utf8 = is_utf8(text);
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters, too: U+009B begins the sequences of a terminal.
    const bool high = utf8 && c == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8) || high) {
      result += fmt::format("\\x{:02x}", c);
      if (high) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string printable(std::string_view text) {
  std::size_t longest = 400;
  if (text.size() <= longest) return without_controls(text);
  while (longest > 397 && (static_cast<unsigned char>(text[longest]) & 0xc0) == 0x80) --longest;  // no half a character
  return without_controls(text.substr(0, longest)) + "...";
}

}  // namespace penstock::cli
