#include "data/table/number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string>

#include "base/lower_case.h"

namespace penstock::data {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::errc parse_plain(std::string_view text, double& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() + text.size() ? std::errc::invalid_argument : error;
}

// Blank, no-break space, narrow no-break space, thin space.
constexpr std::string_view spaces[] = {" ", "\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"};
constexpr std::string_view apostrophes[] = {"'", "\xe2\x80\x99"};
// Dollar, euro, pound, yen.
constexpr std::string_view currencies[] = {"$", "\xe2\x82\xac", "\xc2\xa3", "\xc2\xa5"};

/// Returns the sign among these that the text starts with; empty if it starts with none.
std::string_view first_of(std::span<const std::string_view> signs, std::string_view text) {
  const auto found = std::ranges::find_if(signs, [&](auto sign) { return text.starts_with(sign); });
  return found == signs.end() ? std::string_view() : *found;
}

/// Returns the sign among these that the text ends with; empty if it ends with none.
std::string_view last_of(std::span<const std::string_view> signs, std::string_view text) {
  const auto found = std::ranges::find_if(signs, [&](auto sign) { return text.ends_with(sign); });
  return found == signs.end() ? std::string_view() : *found;
}

/// The separator of groups that the text starts with; empty if it is none.
std::string_view group_separator(std::string_view text, char decimal) {
  if (text.starts_with(decimal == '.' ? ',' : '.')) return text.substr(0, 1);
  const std::string_view apostrophe = first_of(apostrophes, text);
  return apostrophe.empty() ? first_of(spaces, text) : apostrophe;
}

/// Drops the separators of a whole part such as "1,234,567"; false if the groups are not of three digits.
bool join_groups(std::string_view text, char decimal, std::string& digits) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  digits.append(text.substr(0, count));
  text.remove_prefix(count);
  if (text.empty()) return true;
  if (count < 1 || count > 3) return false;
  const std::string separator(group_separator(text, decimal));
  while (!text.empty()) {
    if (separator.empty() || !text.starts_with(separator)) return false;
    text.remove_prefix(separator.size());
    if (text.size() < 3 || !std::all_of(text.begin(), text.begin() + 3, is_digit)) return false;
    digits.append(text.substr(0, 3));
    text.remove_prefix(3);
  }
  return true;
}

/// Drops a currency and the spaces between it and the number; false if the text begins with none.
bool drop_leading_currency(std::string_view& text) {
  const std::string_view currency = first_of(currencies, text);
  text.remove_prefix(currency.size());
  if (currency.empty()) return false;
  for (auto space = first_of(spaces, text); !space.empty(); space = first_of(spaces, text)) {
    text.remove_prefix(space.size());
  }
  return true;
}

/// Drops a currency or a percent sign behind the number, and the space before it.
void drop_trailing_unit(std::string_view& text) {
  const std::string_view unit = text.ends_with('%') ? "%" : last_of(currencies, text);
  text.remove_suffix(unit.size());
  for (auto space = last_of(spaces, text); !unit.empty() && !space.empty(); space = last_of(spaces, text)) {
    text.remove_suffix(space.size());
  }
}

/// Drops the sign that the text begins with; "-", "+", or nothing if it begins with none.
std::string_view drop_sign(std::string_view& text) {
  constexpr std::string_view minus = "\xe2\x88\x92";  // that typesetters use
  if (text.starts_with(minus)) {
    text.remove_prefix(minus.size());
    return "-";
  }
  if (!text.starts_with('-') && !text.starts_with('+')) return {};
  const std::string_view sign = text.substr(0, 1);
  text.remove_prefix(1);
  return sign;
}

/// Returns the number in plain form; nothing if the text is no number.
std::optional<std::string> plain_form(std::string_view text, char decimal) {
  // Accountants' way to write what is less than nothing.
  const bool in_brackets = text.starts_with('(') && text.ends_with(')');
  if (in_brackets) text = text.substr(1, text.size() - 2);
  drop_trailing_unit(text);
  std::string_view sign = drop_sign(text);
  if (drop_leading_currency(text) && sign.empty()) sign = drop_sign(text);
  if (in_brackets && !sign.empty()) return std::nullopt;
  std::string plain = in_brackets || sign == "-" ? "-" : "";
  const std::size_t whole_end = std::min({text.find(decimal), text.find_first_of("eE"), text.size()});
  if (!join_groups(text.substr(0, whole_end), decimal, plain)) return std::nullopt;
  text.remove_prefix(whole_end);
  if (text.starts_with(decimal)) {
    plain += '.';
    text.remove_prefix(1);
  }
  if (text.find_first_of(".,") != text.npos) return std::nullopt;
  plain.append(text);
  return plain;
}

struct TruthWords {
  std::string_view yes, no;
};

// Words in the languages of most tables. lower_case() leaves some letters alone: their words appear in both cases.
// clang-format off
constexpr TruthWords truth_words[] = {
    // English
    {"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"},
    // German
    {"wahr", "falsch"}, {"ja", "nein"}, {"j", "n"}, {"w", "f"},
    // French
    {"vrai", "faux"}, {"oui", "non"}, {"v", "f"}, {"o", "n"},
    // Spanish, Italian, Portuguese, with and without accents
    {"verdadero", "falso"}, {"vero", "falso"}, {"verdadeiro", "falso"}, {"si", "no"}, {"s", "n"},
    {"s\xc3\xad", "no"}, {"s\xc3\x8d", "no"}, {"s\xc3\xac", "no"}, {"s\xc3\x8c", "no"},
    {"sim", "nao"}, {"sim", "n\xc3\xa3o"}, {"sim", "n\xc3\x83o"},
    // Dutch, Swedish, Danish, Norwegian
    {"waar", "onwaar"}, {"ja", "nee"}, {"sant", "falskt"}, {"ja", "nej"}, {"ja", "nei"},
    // Polish
    {"prawda", "fa\xc5\x82sz"}, {"prawda", "fa\xc5\x81sz"}, {"tak", "nie"},
};
// clang-format on

}  // namespace

std::errc parse_number(std::string_view text, char decimal, double& value) {
  // Nearly all numbers of most files are plain ones, and need no second form.
  if (decimal == '.') {
    const std::errc error = parse_plain(text, value);
    if (error != std::errc::invalid_argument) return error;
  }
  const std::optional<std::string> plain = plain_form(text, decimal);
  return plain ? parse_plain(*plain, value) : std::errc::invalid_argument;
}

std::optional<double> parse_boolean(std::string_view text) {
  if (text.size() < 2 || text.size() > 5) return std::nullopt;
  const std::string word = lower_case(text);
  if (word == "true" || word == "yes") return 1.0;
  if (word == "false" || word == "no") return 0.0;
  return std::nullopt;
}

std::optional<double> parse_truth(std::string_view text) {
  if (text.empty() || text.size() > 10) return std::nullopt;
  const std::string word = lower_case(text);
  for (const auto& [yes, no] : truth_words) {
    if (word == yes) return 1.0;
    if (word == no) return 0.0;
  }
  return std::nullopt;
}

bool are_opposites(std::string_view a, std::string_view b) {
  const std::string first = lower_case(a), second = lower_case(b);
  return std::ranges::any_of(truth_words, [&](const TruthWords& words) {
    return (first == words.yes && second == words.no) || (first == words.no && second == words.yes);
  });
}

DecimalHint decimal_hint(std::string_view text) {
  double value = 0.0;
  const bool point = parse_number(text, '.', value) == std::errc{};
  const bool comma = parse_number(text, ',', value) == std::errc{};
  const bool has_point = text.find('.') != text.npos, has_comma = text.find(',') != text.npos;
  if (point == comma) {
    // "1,234" and "1.234": the point is far more often that of a fraction.
    if (!point || (!has_point && !has_comma)) return DecimalHint::none;
    return has_comma ? DecimalHint::comma_or_thousands : DecimalHint::point;
  }
  return point ? DecimalHint::point : DecimalHint::comma;
}

}  // namespace penstock::data
