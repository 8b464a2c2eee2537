#include "csp/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::csp {
namespace {

constexpr std::array<std::string_view, 9> long_symbols = {"->", "==", "!=", "<=", ">=", "&&", "||", "..", "=>"};
constexpr std::string_view short_symbols = "+-*/%<>!(){},:=;";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c); }

/// Returns whether a token cannot begin or end a statement.
bool joins(const Token& token) {
  static constexpr std::array<std::string_view, 17> operators = {"->", "==", "!=", "<=", ">=", "&&", "||",  "..", "+",
                                                                 "*",  "/",  "%",  "<",  ">",  ",",  "and", "or"};
  return std::any_of(operators.begin(), operators.end(), [&](std::string_view text) { return token.is(text); });
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (skip_blanks()) {
      Token token = at_place();
      read(token);
      add(token);
    }
    tokens_.push_back(at_place());
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Token at_place() const {
    Token token;
    token.line = line_;
    token.column = static_cast<int>(at_ - line_begin_) + 1;
    token.begin = token.end = at_;
    return token;
  }

  /// Skips blanks and comments. Returns false at the end of the text.
  bool skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else {
        return true;
      }
    }
    return false;
  }

  void read(Token& token) {
    const char c = text_[at_];
    if (c == '\n') {
      token.kind = Token::Kind::separator;
      ++at_;
      ++line_;
      line_begin_ = at_;
    } else if (is_digit(c)) {
      read_number(token);
    } else if (starts_name(c)) {
      token.kind = Token::Kind::name;
      while (continues_name(peek())) ++at_;
    } else if (c == '"') {
      read_string(token);
      return;
    } else {
      read_symbol(token);
    }
    token.end = at_;
    token.text = text_.substr(token.begin, token.end - token.begin);
  }

  void read_number(Token& token) {
    token.kind = Token::Kind::number;
    while (is_digit(peek())) ++at_;
    const char* first = text_.data() + token.begin;
    const auto [end, error] = std::from_chars(first, text_.data() + at_, token.number);
    if (error != std::errc() || token.number > largest) {
      fail_at(token, fmt::format("a number must be at most {}", largest));
    }
    if (starts_name(peek())) fail_at(token, "a name must not begin with a digit");
    if (peek() == '.' && is_digit(peek(1))) fail_at(token, "numbers are whole");
  }

  void read_string(Token& token) {
    token.kind = Token::Kind::string;
    ++at_;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') ++at_;
    if (peek() != '"') fail_at(token, "the quote is not closed on its line");
    token.text = text_.substr(token.begin + 1, at_ - token.begin - 1);
    token.end = ++at_;
  }

  void read_symbol(Token& token) {
    token.kind = Token::Kind::symbol;
    const std::string_view rest = text_.substr(at_);
    for (const std::string_view symbol : long_symbols) {
      if (rest.starts_with(symbol)) {
        at_ += symbol.size();
        return;
      }
    }
    if (short_symbols.find(rest.front()) == std::string_view::npos) {
      fail_at(token, fmt::format("{} means nothing here", in_quotes(rest.substr(0, 1))));
    }
    if (rest.front() == ';') token.kind = Token::Kind::separator;
    ++at_;
  }

  void add(const Token& token) {
    const bool line_end = token.kind == Token::Kind::separator && token.text == "\n";
    if (line_end && (open_ > 0 || (!tokens_.empty() && joins(tokens_.back())))) return;
    if (!line_end && joins(token)) {
      while (!tokens_.empty() && tokens_.back().text == "\n" && tokens_.back().kind == Token::Kind::separator) {
        tokens_.pop_back();
      }
    }
    if (token.is("(") || token.is("{")) ++open_;
    if (token.is(")") || token.is("}")) open_ = std::max(0, open_ - 1);
    if (token.kind == Token::Kind::separator && !line_end) open_ = 0;
    tokens_.push_back(token);
  }

  std::string_view text_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1, open_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(const Token& token, const std::string& message) {
  fail(ErrorCode::bad_input, "{}:{}: {}", token.line, token.column, message);
}

std::vector<Token> tokens_of(std::string_view text) { return Lexer(text).run(); }

}  // namespace penstock::csp
