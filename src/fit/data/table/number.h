#pragma once

#include <optional>
#include <string_view>
#include <system_error>

/// Numbers as tables hold them.
namespace penstock::data {

/// The whole text as a number whose fraction starts behind `decimal` ('.' or ','). Digits may stand in groups of three
/// with one kind of separator between them (a blank, an apostrophe, or the other one of '.' and ','); a percent sign
/// behind the number is dropped, so that 12.5 % is 12.5, and so is a currency's in front or behind; (12.5) is -12.5.
/// std::errc{} if it is one.
std::errc parse_number(std::string_view text, char decimal, double& value);

/// "true", "yes", "false", "no", in any case of the letters: 1 or 0.
std::optional<double> parse_boolean(std::string_view text);

/// 1 or 0 for one word of a pair that says whether something is so, in any case of the letters: those above, y and n,
/// on and off, and the like in other languages (ja and nein, vrai and faux).
std::optional<double> parse_truth(std::string_view text);
/// Returns whether one of these words is the opposite of the other, so that a column of both holds truth values.
bool are_opposites(std::string_view a, std::string_view b);

/// "." or ",", as far as this text shows which of them starts a fraction.
enum class DecimalHint { none, point, comma, comma_or_thousands };
DecimalHint decimal_hint(std::string_view text);

}  // namespace penstock::data
