#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/quote.h"
#include "csp/lexer.h"

namespace penstock::csp {
namespace {

/// Each level of brackets takes several levels of calls.
constexpr int most_nesting = 200;

constexpr std::array<std::string_view, 16> reserved = {
    "true", "false", "in",       "and",           "or",       "not",      "let",      "if",
    "min",  "max",   "ceil_div", "all_different", "minimise", "minimize", "maximise", "maximize"};

using Value = std::variant<Expression, Constraint>;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), tokens_(tokens_of(text)) {}

  Model run() {
    while (token().kind != Token::Kind::end) {
      if (token().kind == Token::Kind::separator) {
        ++at_;
        continue;
      }
      const Token& first = token();
      try {
        statement();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        fail_at(first, error.what());
      }
      const bool ended = token().kind == Token::Kind::separator || token().kind == Token::Kind::end;
      if (!ended) fail_at(token(), "an operator or the end of the line must follow, not " + shown(token()));
    }
    return std::move(model_);
  }

 private:
  const Token& token(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }

  static std::string shown(const Token& token) {
    if (token.kind == Token::Kind::end) return "the end";
    if (token.kind == Token::Kind::separator && token.text == "\n") return "the end of the line";
    return in_quotes(token.text);
  }

  bool take(std::string_view symbol) {
    if (!token().is(symbol)) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view symbol, std::string_view word) { return take(symbol) || take(word); }

  void expect(std::string_view symbol) {
    if (!take(symbol)) fail_at(token(), fmt::format("'{}' must follow, not {}", symbol, shown(token())));
  }

  static bool is_reserved(std::string_view name) {
    return std::find(reserved.begin(), reserved.end(), name) != reserved.end();
  }

  // Statements.

  void statement() {
    if (take("let")) return abbreviation();
    if (take("minimise", "minimize")) return cost(true);
    if (take("maximise", "maximize")) return cost(false);
    std::string name = label();
    const bool declares = name.empty() && token().kind == Token::Kind::name && token(1).is("in") &&
                          !names_.contains(std::string(token().text));
    if (declares) return declaration();
    const std::size_t first = at_;
    const Constraint constraint = condition(implication(), tokens_[first]);
    if (name.empty()) name = source(first, at_);
    model_.require(std::move(name), constraint);
  }

  /// Parses a label such as "shared memory fits:" or "\"2 x 2\":". Returns an empty text if there is none.
  std::string label() {
    std::size_t end = at_;
    if (token().kind == Token::Kind::string) {
      ++end;
    } else {
      const auto is_word = [](const Token& t) { return t.kind == Token::Kind::name || t.kind == Token::Kind::number; };
      while (end < tokens_.size() && is_word(tokens_[end])) ++end;
    }
    if (end == at_ || end >= tokens_.size() || !tokens_[end].is(":")) return "";
    const bool quoted = token().kind == Token::Kind::string;
    std::string name = quoted ? std::string(token().text) : source(at_, end);
    if (name.empty()) fail_at(token(), "a constraint must not have an empty name");
    at_ = end + 1;
    if (token().kind == Token::Kind::separator && token().text == "\n") ++at_;
    return name;
  }

  /// Returns the text of some tokens in one line.
  std::string source(std::size_t begin, std::size_t end) const {
    std::string text;
    for (std::size_t i = begin; i < end; ++i) {
      if (i > begin && tokens_[i].begin > tokens_[i - 1].end) text += ' ';
      text += text_.substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin);
    }
    constexpr std::size_t longest = 400;
    return text.size() <= longest ? text : text.substr(0, longest) + "...";
  }

  std::string new_name() {
    if (token().kind != Token::Kind::name) fail_at(token(), "a name must follow, not " + shown(token()));
    std::string name(token().text);
    if (is_reserved(name)) fail_at(token(), fmt::format("'{}' has a meaning of its own and cannot be a name", name));
    if (names_.contains(name)) fail_at(token(), fmt::format("there is a '{}' already", name));
    ++at_;
    return name;
  }

  void declaration() {
    const std::string name = new_name();
    expect("in");
    names_.emplace(name, model_.var(name, domain()));
  }

  void abbreviation() {
    const std::string name = new_name();
    expect("=");
    names_.emplace(name, implication());
  }

  void cost(bool minimised) {
    if (model_.has_cost()) fail_at(tokens_[at_ - 1], "there is a cost already");
    const Expression value = sum_at_place();
    minimised ? model_.minimise(value) : model_.maximise(value);
  }

  // Domains.

  Integer constant() {
    const Token& first = token();
    const auto value = sum_at_place().constant();
    if (!value) fail_at(first, "a constant must stand here");
    return *value;
  }

  Domain domain() {
    if (take("{")) return list();
    if (token(1).is("(")) {
      if (take("divisors")) return function([&] { return divisors(constant()); });
      if (take("powers_of_two")) {
        return function([&] {
          const Range range = bounds();
          return powers_of_two(range.low, range.high);
        });
      }
    }
    const Range range = bounds();
    if (!take("step")) return Domain(range);
    const Token& first = token();
    const Integer step = constant();
    if (step < 1) fail_at(first, fmt::format("a step must be at least 1, not {}", step));
    if (step == 1) return Domain(range);
    // Counts from the lower bound, which need not be a multiple.
    const Domain multiple = multiples(step, 0, range.high - range.low);
    std::vector<Integer> values;
    for (Integer i = 0; i < multiple.size(); ++i) values.push_back(range.low + multiple[i]);
    return Domain(std::move(values));
  }

  template <class Read>
  Domain function(Read read) {
    expect("(");
    Domain result = read();
    expect(")");
    return result;
  }

  Range bounds() {
    const Token& first = token();
    const Integer low = constant();
    expect("..");
    const Integer high = constant();
    if (low > high) fail_at(first, fmt::format("{}..{} has no values", low, high));
    return {low, high};
  }

  Domain list() {
    constexpr Integer longest = 1'000'000;
    std::vector<Integer> values;
    do {
      const Token& first = token();
      const Integer low = constant();
      const Integer high = take("..") ? constant() : low;
      if (low > high) fail_at(first, fmt::format("{}..{} has no values", low, high));
      if (high - low >= longest) fail_at(first, fmt::format("a range in a list must have at most {} values", longest));
      for (Integer value = low; value <= high; ++value) values.push_back(value);
      if (static_cast<Integer>(values.size()) > longest) {
        fail_at(first, fmt::format("a list must have at most {} values", longest));
      }
    } while (take(","));
    expect("}");
    return Domain(std::move(values));
  }

  // Conditions and expressions, from the lowest to the highest precedence.

  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser.depth_ > most_nesting) fail_at(parser.token(), "this is nested too deeply");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  static Constraint condition(const Value& value, const Token& at) {
    if (const auto* constraint = std::get_if<Constraint>(&value)) return *constraint;
    fail_at(at, fmt::format("a condition must stand here, not the number {}",
                            in_quotes(std::get<Expression>(value).text())));
  }

  static Expression number(const Value& value, const Token& at) {
    if (const auto* expression = std::get_if<Expression>(&value)) return *expression;
    fail_at(at, fmt::format("a number must stand here, not the condition {}",
                            in_quotes(std::get<Constraint>(value).text())));
  }

  Expression sum_at_place() {
    const Token& first = token();
    return number(sum(), first);
  }

  Value implication() {
    const Level level(*this);
    const Token& first = token();
    Value left = alternative();
    if (!take("->")) return left;
    const Token& second = token();
    return implies(condition(left, first), condition(implication(), second));
  }

  Value alternative() {
    const Token& first = token();
    Value left = both();
    while (take("||", "or")) {
      const Token& second = token();
      left = condition(left, first) || condition(both(), second);
    }
    return left;
  }

  Value both() {
    const Token& first = token();
    Value left = negation();
    while (take("&&", "and")) {
      const Token& second = token();
      left = condition(left, first) && condition(negation(), second);
    }
    return left;
  }

  Value negation() {
    if (!take("!", "not")) return comparison();
    const Level level(*this);
    const Token& first = token();
    return !condition(negation(), first);
  }

  /// Parses comparisons: "1 <= a < b" means "1 <= a" and "a < b".
  Value comparison() {
    const Token* first = &token();
    Value left = sum();
    std::optional<Constraint> all;
    while (true) {
      if (token().is("=")) fail_at(token(), "'==' compares; '=' stands behind 'let' only");
      std::optional<Constraint> next;
      const bool excluded = token().is("not") && token(1).is("in");
      if (excluded || token().is("in")) {
        at_ += excluded ? 2 : 1;
        const Constraint member = one_of(number(left, *first), domain());
        next = excluded ? !member : member;
      } else {
        const std::string_view sign = comparison_sign();
        if (sign.empty()) break;
        first = &tokens_[at_ - 2];
        const Expression a = number(left, *first);
        first = &token();
        left = sum();
        next = compared(sign, a, number(left, *first));
      }
      all = all ? *all && *next : *next;
    }
    if (all) return *all;
    return left;
  }

  std::string_view comparison_sign() {
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(sign)) return sign;
    }
    return "";
  }

  static Constraint compared(std::string_view sign, const Expression& a, const Expression& b) {
    if (sign == "==") return a == b;
    if (sign == "!=") return a != b;
    if (sign == "<=") return a <= b;
    if (sign == ">=") return a >= b;
    return sign == "<" ? a < b : a > b;
  }

  Value sum() {
    const Token& first = token();
    Value left = term();
    while (token().is("+") || token().is("-")) {
      const bool plus = take("+");
      if (!plus) ++at_;
      const Token& second = token();
      const Expression a = number(left, first), b = number(term(), second);
      left = plus ? a + b : a - b;
    }
    return left;
  }

  Value term() {
    const Token& first = token();
    Value left = factor();
    while (token().is("*") || token().is("/") || token().is("%")) {
      const char sign = token().text.front();
      ++at_;
      const Token& second = token();
      const Expression a = number(left, first), b = number(factor(), second);
      left = sign == '*' ? a * b : sign == '/' ? a / b : a % b;
    }
    return left;
  }

  Value factor() {
    const Level level(*this);
    const Token& first = token();
    if (take("-")) {
      const Token& second = token();
      return -number(factor(), second);
    }
    if (take("(")) {
      Value inside = implication();
      expect(")");
      return inside;
    }
    if (first.kind == Token::Kind::number) {
      ++at_;
      return Expression(first.number);
    }
    if (first.kind == Token::Kind::name) {
      if (is_reserved(first.text)) return call();
      const auto found = names_.find(std::string(first.text));
      if (found == names_.end()) fail_at(first, fmt::format("{} is not declared", in_quotes(first.text)));
      ++at_;
      return found->second;
    }
    fail_at(first, "a number, a name or a bracket must follow, not " + shown(first));
  }

  Value call() {
    const Token& name = token();
    if (take("true")) return Expression(0) == 0;
    if (take("false")) return Expression(0) == 1;
    if (take("if")) return choice();
    if (take("min")) return folded([](const Expression& a, const Expression& b) { return min(a, b); });
    if (take("max")) return folded([](const Expression& a, const Expression& b) { return max(a, b); });
    if (take("ceil_div")) {
      const std::vector<Expression> all = arguments();
      if (all.size() != 2) fail_at(name, fmt::format("ceil_div takes 2 numbers, not {}", all.size()));
      return ceil_div(all[0], all[1]);
    }
    if (take("all_different")) {
      constexpr std::size_t most = 200;  // each pair becomes a constraint
      const std::vector<Expression> all = arguments();
      if (all.size() > most) fail_at(name, fmt::format("all_different takes at most {} numbers", most));
      return all_different(all);
    }
    fail_at(name, fmt::format("a number, a name or a bracket must follow, not '{}'", name.text));
  }

  Value choice() {
    expect("(");
    const Token& first = token();
    const Constraint asked = condition(implication(), first);
    expect(",");
    const Expression yes = sum_at_place();
    expect(",");
    const Expression no = sum_at_place();
    expect(")");
    return select(asked, yes, no);
  }

  std::vector<Expression> arguments() {
    expect("(");
    std::vector<Expression> all;
    do all.push_back(sum_at_place());
    while (take(","));
    expect(")");
    return all;
  }

  template <class Fold>
  Value folded(Fold fold) {
    const std::vector<Expression> all = arguments();
    Expression result = all.front();
    for (std::size_t i = 1; i < all.size(); ++i) result = fold(result, all[i]);
    return result;
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Model model_;
  std::unordered_map<std::string, Value> names_;
};

}  // namespace

Model parse(std::string_view text) { return Parser(text).run(); }

}  // namespace penstock::csp
