#include "data/text_encoding.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace penstock::io {
namespace {

void append_utf8(std::string& text, char32_t code) {
  int left = code < 0x80 ? 0 : code < 0x800 ? 6 : code < 0x10000 ? 12 : 18;  // bits behind the first byte
  const char32_t length_mark = left == 0 ? 0 : left == 6 ? 0xc0 : left == 12 ? 0xe0 : 0xf0;
  text += static_cast<char>(length_mark | code >> left);
  for (left -= 6; left >= 0; left -= 6) text += static_cast<char>(0x80 | (code >> left & 0x3f));
}

bool is_surrogate(char32_t code) { return code >= 0xd800 && code < 0xe000; }
bool leads_surrogate(char32_t code) { return code >= 0xd800 && code < 0xdc00; }

/// The two bytes at `i` of content in UTF-16, in the order that its mark says.
char32_t unit_at(std::string_view content, std::size_t i) {
  const std::size_t high = content.starts_with("\xfe\xff") ? 0 : 1;
  return static_cast<char32_t>(static_cast<unsigned char>(content[i + high]) << 8 |
                               static_cast<unsigned char>(content[i + 1 - high]));
}

/// The length of the character that text begins with; 0 if it begins with none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  char32_t code = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};  // of each length
  return code < least[length] || code > 0x10ffff || is_surrogate(code) ? 0 : length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_utf16(std::string_view content) { return content.starts_with("\xff\xfe") || content.starts_with("\xfe\xff"); }

std::string_view whole_utf16(std::string_view content) {
  content.remove_suffix(content.size() % 2);
  const bool is_cut = content.size() > 2 && leads_surrogate(unit_at(content, content.size() - 2));
  if (is_cut) content.remove_suffix(2);
  return content;
}

std::string utf16_to_utf8(std::string_view content, const std::string& path) {
  const auto unit = [&](std::size_t i) {
    if (i + 2 > content.size()) fail(ErrorCode::bad_input, "{}: text in UTF-16 that ends within a character", path);
    return unit_at(content, i);
  };
  std::string text;
  text.reserve(content.size() / 2);
  for (std::size_t i = 2; i < content.size(); i += 2) {
    char32_t code = unit(i);
    if (is_surrogate(code)) {
      const bool leads = leads_surrogate(code);
      const char32_t trail = leads ? unit(i + 2) : 0;
      if (!leads || trail < 0xdc00 || trail > 0xdfff) {
        fail(ErrorCode::bad_input, "{}: damaged text in UTF-16: half a character at byte {}", path, i + 1);
      }
      code = 0x10000 + ((code - 0xd800) << 10) + (trail - 0xdc00);
      i += 2;
    }
    append_utf8(text, code);
  }
  return text;
}

std::string as_utf8(std::string content, const std::string& path) {
  return is_utf16(content) ? utf16_to_utf8(content, path) : std::move(content);
}

std::string windows_1252_to_utf8(std::string_view text) {
  // Code points of the bytes 0x80 to 0x9f; all other bytes are those of Unicode.
  constexpr std::array<char16_t, 32> codes = {0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
                                              0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
                                              0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                              0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    append_utf8(result, byte >= 0x80 && byte < 0xa0 ? codes[byte - 0x80] : byte);
  }
  return result;
}

}  // namespace penstock::io
