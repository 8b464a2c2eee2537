#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/quote.h"
#include "penstock/error.h"

namespace penstock {

/// Throws Error(code) with a formatted one-line message. For an impossible argument, see require_argument().
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(code) "<problem>; <remedy>", or "<problem>" if the remedy is empty:
///   fail_with(ErrorCode::bad_input, {the_option("missing"), " accepts such values"}, "{}: the value is missing",
///   path);
template <class... Args>
[[noreturn]] void fail_with(ErrorCode code, const Message& remedy, fmt::format_string<Args...> problem,
                            Args&&... args) {
  const std::string text = fmt::format(problem, std::forward<Args>(args)...);
  throw Error(code, remedy.empty() ? Message(text) : Message(text + "; ") + remedy, {.remedy = remedy});
}

/// fail(invalid_argument, ...) unless the condition holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

/// A setting as the subject of a sentence, by its name: "learning_rate".
inline Message::Part the_argument(const std::string& name) { return {name, name, ""}; }
/// A setting in the midst of a sentence, with a value to give it or without: "the option 'clip=1'".
inline Message::Part the_option(std::string name, std::string value = {}) {
  std::string text = fmt::format("the option '{}{}{}'", name, value.empty() ? "" : "=", value);
  return {std::move(text), std::move(name), std::move(value)};
}

/// Throws Error(invalid_argument) "<argument> must be <allowed>, not <value>; <remedy>"; the remedy may be empty.
[[noreturn]] inline void fail_argument(ErrorFields fields, const std::string& shown) {
  Message message = {the_argument(fields.argument), " must be " + fields.allowed + ", not " + shown};
  if (!fields.remedy.empty()) message += Message("; ") + fields.remedy;
  throw Error(ErrorCode::invalid_argument, std::move(message), std::move(fields));
}

/// fail_argument() unless the condition holds. Name the argument, its value and what is allowed:
///   require_argument(heads >= 1 && heads <= most, "heads", heads, "1 to {}", most);
template <class... Args>
void require_argument(bool condition, std::string_view name, const auto& value, fmt::format_string<Args...> allowed,
                      Args&&... args) {
  if (condition) return;
  std::string text = fmt::format("{}", value);
  const bool is_text = std::is_convertible_v<decltype(value), std::string_view>;
  const std::string shown = is_text ? in_quotes(text) : text;
  fail_argument({.argument = std::string(name),
                 .value = std::move(text),
                 .allowed = fmt::format(allowed, std::forward<Args>(args)...)},
                shown);
}

/// Throws Error(invalid_argument) "<name><problem>" unless the condition holds, for a problem that is no wrong value:
///   require_about(goes_with_dates, "undated", ": {} has no column of dates", path);
template <class... Args>
void require_about(bool condition, std::string_view name, fmt::format_string<Args...> problem, Args&&... args) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument,
              {the_argument(std::string(name)), fmt::format(problem, std::forward<Args>(args)...)},
              {.argument = std::string(name)});
}

/// Requires that `value`, an enumeration's, is one of its values: 0 to `last`.
template <class Enum>
void check_enum(std::string_view name, Enum value, Enum last) {
  const auto number = static_cast<long long>(static_cast<std::underlying_type_t<Enum>>(value));
  const auto most = static_cast<long long>(static_cast<std::underlying_type_t<Enum>>(last));
  require_argument(number >= 0 && number <= most, name, number, "a value of its enumeration, 0 to {}", most);
}

}  // namespace penstock
