#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/csp.h"

namespace penstock::csp {

struct Token {
  enum class Kind { number, name, string, symbol, separator, end };

  Kind kind = Kind::end;
  std::string_view text;     ///< Part of the source; for a string the part between the quotes.
  Integer number = 0;        ///< Value of a number.
  int line = 1, column = 1;  ///< From 1; columns are bytes.
  std::size_t begin = 0, end = 0;

  bool is(std::string_view symbol) const { return (kind == Kind::symbol || kind == Kind::name) && text == symbol; }
};

/// Throws Error(bad_input) with the message "line:column: ...".
[[noreturn]] void fail_at(const Token& token, const std::string& message);

/// Returns the tokens of a text; the last one is its end. Line ends and ';' are separators. Line ends inside brackets,
/// and before or after a binary operator, are ignored.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace penstock::csp
