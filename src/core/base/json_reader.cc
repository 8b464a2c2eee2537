#include "base/json_reader.h"

#include <algorithm>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace penstock {

namespace {

// Deeper than branches of networks may lie in each other, and shallow enough for the stack of a small thread.
constexpr int kMostDepth = 160;
// The longest number that anybody writes has 25 characters; a double in full has 1100.
constexpr std::size_t kLongestNumber = 1200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(unsigned code, std::string& value) {
  const auto rest = [&](unsigned shift) { value += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    value += static_cast<char>(code);
  } else if (code < 0x800) {
    value += static_cast<char>(0xc0 | (code >> 6));
    rest(0);
  } else if (code < 0x10000) {
    value += static_cast<char>(0xe0 | (code >> 12));
    rest(6), rest(0);
  } else {
    value += static_cast<char>(0xf0 | (code >> 18));
    rest(12), rest(6), rest(0);
  }
}

}  // namespace

bool JsonReader::mistake(const char* expected) {
  if (problem_.empty()) problem_ = std::string(what_) + ": " + expected + " expected at byte " + std::to_string(at_);
  return false;
}

void JsonReader::blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool JsonReader::enter(char bracket, const char* what) {
  blanks();
  if (peek() != bracket) return mistake(what);
  if (++depth_ > kMostDepth) return mistake("fewer values in each other");
  ++at_;
  return true;
}

bool JsonReader::leaves(char bracket) {
  blanks();
  return peek() == bracket;
}

bool JsonReader::leave() {
  --depth_;
  ++at_;
  return true;
}

bool JsonReader::expect(char c) {
  blanks();
  const char name[] = {'\'', c, '\'', '\0'};
  if (peek() != c) return mistake(name);
  ++at_;
  return true;
}

bool JsonReader::finish() {
  blanks();
  return at_ == text_.size() || mistake("the end of the text");
}

bool JsonReader::hex(unsigned& value) {
  value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = peek();
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      value = 16 * value + static_cast<unsigned>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = 16 * value + static_cast<unsigned>(lower - 'a' + 10);
    } else {
      return mistake("four hexadecimal digits");
    }
  }
  return true;
}

bool JsonReader::unicode(std::string& value) {
  unsigned code = 0, low = 0;
  if (!hex(code)) return false;
  if (code >= 0xdc00 && code < 0xe000) return mistake("the first half of a surrogate pair");
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") return mistake("the second half of a surrogate pair");
    at_ += 2;
    if (!hex(low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return mistake("the second half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(code, value);
  return true;
}

bool JsonReader::escape(std::string& value) {
  constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  ++at_;
  const char c = peek();
  ++at_;
  if (c == 'u') return unicode(value);
  const std::size_t found = names.find(c);
  if (found == names.npos || c == '\0') return mistake("an escape sequence");
  value += meanings[found];
  return true;
}

/// A character of several bytes; those that are no shortest form, no character or half a surrogate pair are refused.
bool JsonReader::utf8(std::string& value) {
  const auto byte = [&](std::size_t i) {
    return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
  };
  const unsigned first = byte(0);
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (0x7fu >> size);
  bool valid = first >= 0xc2 && first <= 0xf4;
  for (std::size_t i = 1; i < size; ++i) {
    valid = valid && (byte(i) & 0xc0u) == 0x80u;
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  constexpr unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (!valid || code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return mistake("UTF-8");
  value.append(text_.substr(at_, size));
  at_ += size;
  return true;
}

bool JsonReader::string(std::string& value) {
  blanks();
  value.clear();
  if (peek() != '"') return mistake("a string");
  for (++at_; at_ < text_.size();) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return true;
    }
    if (c == '\\') {
      if (!escape(value)) return false;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!utf8(value)) return false;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      return mistake("no control character");
    } else {
      value += c;
      ++at_;
    }
  }
  return mistake("the end of a string");
}

/// A number by the grammar of JSON; empty if there is none.
std::string_view JsonReader::number_token() {
  blanks();
  const std::size_t begin = at_;
  const auto digits = [&] {
    const std::size_t first = at_;
    while (is_digit(peek())) ++at_;
    return at_ - first;
  };
  if (peek() == '-') ++at_;
  const bool zero = peek() == '0';
  std::size_t whole = digits();
  bool valid = whole == 1 || (whole > 1 && !zero);
  if (peek() == '.') {
    ++at_;
    valid = digits() > 0 && valid;
  }
  if ((peek() | 0x20) == 'e') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    valid = digits() > 0 && valid;
  }
  if (!valid || at_ - begin > kLongestNumber) {
    at_ = begin;
    return {};
  }
  return text_.substr(begin, at_ - begin);
}

bool JsonReader::number(double& value) {
  const std::string_view token = number_token();
  if (token.empty()) return mistake("a number");
  std::string text(token);
  // strtod() reads the decimal point of the program's language.
  const std::lconv* const language = std::localeconv();
  if (language != nullptr && language->decimal_point != nullptr && language->decimal_point[0] != '\0') {
    std::replace(text.begin(), text.end(), '.', language->decimal_point[0]);
  }
  value = std::strtod(text.c_str(), nullptr);
  return std::isfinite(value) || mistake("a number that a double can hold");
}

bool JsonReader::integer(Index& value) {
  const std::string_view token = number_token();
  if (token.empty() || token.find_first_of(".eE") != token.npos) return mistake("a whole number");
  const bool negative = token[0] == '-';
  constexpr Index most = Index{1} << 62;
  value = 0;
  for (const char c : token.substr(negative ? 1 : 0)) {
    if (value > (most - (c - '0')) / 10) return mistake("a smaller number");
    value = 10 * value + (c - '0');
  }
  if (negative) value = -value;
  return true;
}

bool JsonReader::word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

bool JsonReader::boolean(bool& value) {
  blanks();
  value = peek() == 't';
  return word(value ? "true" : "false") || mistake("true or false");
}

bool JsonReader::skip() {
  blanks();
  std::string text;
  double value = 0;
  bool flag = false;
  switch (peek()) {
    case '{':
      return object([&](std::string_view) { return skip(); });
    case '[':
      return array([&] { return skip(); });
    case '"':
      return string(text);
    case 't':
    case 'f':
      return boolean(flag);
    case 'n':
      return word("null") || mistake("null");
    default:
      return number(value);
  }
}

}  // namespace penstock
