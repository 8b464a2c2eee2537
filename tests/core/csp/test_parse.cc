#include <gtest/gtest.h>

#include "penstock/csp.h"
#include "support/expect_error.h"

/// The text format of docs/csp.md.
namespace penstock::csp::test {
namespace {

using penstock::test::expect_error;

std::vector<std::string> solutions(std::string_view text) {
  std::vector<std::string> all;
  for (const Solution& solution : parse(text).all()) all.push_back(solution.text());
  return all;
}

std::string only(std::string_view text) {
  const auto all = solutions(text);
  return all.size() == 1 ? all[0] : std::to_string(all.size()) + " solutions";
}

TEST(CspParse, Domains) {
  const auto domain = [](const std::string& text) {
    std::string values;
    for (const Solution& solution : parse("x in " + text).all()) values += std::to_string(solution.values()[0]) + " ";
    return values;
  };
  EXPECT_EQ(domain("{3, 1, 2 + 5}"), "1 3 7 ");
  EXPECT_EQ(domain("{1, 4..6}"), "1 4 5 6 ");
  EXPECT_EQ(domain("-2..1"), "-2 -1 0 1 ");
  EXPECT_EQ(domain("3..12 step 4"), "3 7 11 ");
  EXPECT_EQ(domain("divisors(3 * 4)"), "1 2 3 4 6 12 ");
  EXPECT_EQ(domain("powers_of_two(1..20)"), "1 2 4 8 16 ");
  EXPECT_EQ(domain("{\n  1, # one\n  2\n}\n"), "1 2 ");
  EXPECT_EQ(only("let H = 12; x in {H / 2..H / 2}"), "x = 6");
  EXPECT_EQ(only("H in {6}; x in divisors(H); x > 3"), "H = 6, x = 6");
}

TEST(CspParse, Constraints) {
  const std::string two = "a in 0..9; b in 0..9\n";
  EXPECT_EQ(only(two + "a + 2 * b == 27; a < 10; b > 8"), "a = 9, b = 9");
  EXPECT_EQ(only(two + "a - b - 1 == 8"), "a = 9, b = 0");
  EXPECT_EQ(only(two + "a == 7 / 2 * 2 % 4 - -1; b == -a + 3"), "a = 3, b = 0");
  EXPECT_EQ(only(two + "8 <= a < 9 == b"), "a = 8, b = 9");
  EXPECT_EQ(only(two + "a == min(4, b, 3) and b == max(1, 7)"), "a = 3, b = 7");
  EXPECT_EQ(only(two + "a == ceil_div(7, 2); b == if(a > 3, 5, 6)"), "a = 4, b = 5");
  EXPECT_EQ(only(two + "a in {2, 4}; a not in 3..9; b == a"), "a = 2, b = 2");
  EXPECT_EQ(only(two + "not (a > 0 || b < 9)"), "a = 0, b = 9");
  EXPECT_EQ(only(two + "!(a > 0) && b >= 9"), "a = 0, b = 9");
  // Implications bind least and go from the right.
  EXPECT_EQ(solutions("a in 0..1; b in 0..1; c in 0..1; a == 1 -> b == 1 -> c == 1").size(), 7u);
  EXPECT_EQ(solutions("a in 0..1; b in 0..1; c in 0..1; (a == 1 -> b == 1) -> c == 1").size(), 5u);
  EXPECT_EQ(solutions("a in 0..1; b in 0..1; a == 0 or a == 1 and b == 1").size(), 3u);
  EXPECT_EQ(solutions("a in 1..3; b in 1..3; c in 1..3; all_different(a, b, c)").size(), 6u);
  EXPECT_EQ(solutions("true"), (std::vector<std::string>{""}));
  EXPECT_TRUE(solutions("false").empty());
}

TEST(CspParse, LinesAndNames) {
  // A line goes on where an operator wants more, before or behind the break.
  EXPECT_EQ(only("a in 0..9\na +\n 1 == 9 and\n a > 2\n\n  and a < 9;;\r\n"), "a = 8");
  const Model m = parse(
      "a in 0..9   # the first\n"
      "shared memory fits: a <= 3\n"
      "\"2 x 2\": a >= 4\n"
      "a  !=  7\n");
  EXPECT_EQ(m.conflict(), (std::vector<std::string>{"shared memory fits", "2 x 2"}));
  EXPECT_EQ(m.constraint_text("a != 7"), "a != 7");
  EXPECT_EQ(parse("").variables().size(), 0u);
}

TEST(CspParse, Costs) {
  EXPECT_EQ(parse("a in 1..9; b in 1..9; a * b == 12; minimise a + b").solve()->cost(), 7);
  EXPECT_EQ(parse("a in 1..9; b in 1..9; a * b == 12; maximize a - b").solve()->text(), "a = 6, b = 2");
  for (const char* text : {"maximise -7", "minimise -7", "a in 1..3; maximise -7", "a in -7..-7; maximise a"}) {
    const Model model = parse(text);
    const auto best = model.solve();
    ASSERT_TRUE(best) << text;
    EXPECT_EQ(best->cost(), -7) << text;
    EXPECT_EQ((*best)[*model.cost()], -7) << text;
  }
}

TEST(CspParse, MistakesSayWhere) {
  const auto mistake = [](const std::string& text, const std::string& message) {
    expect_error(ErrorCode::bad_input, message, [&] { parse(text); });
  };
  mistake("a in 1..3\nb == 2", "2:1: \"b\" is not declared");
  mistake("a in 1..3; a = 2", "1:14: '==' compares");
  mistake("a in 1..3; a + (a > 2) == 1", "1:16: a number must stand here, not the condition \"a > 2\"");
  mistake("a in 1..3\n a + 2", "2:2: a condition must stand here, not the number \"a + 2\"");
  mistake("a in 1..3; not a", "1:16: a condition must stand here");
  mistake("a in 1..3; a > ", "1:16: a number, a name or a bracket must follow, not the end");
  mistake("a in 1..3; a == (1 + 2\n", "')' must follow, not the end");
  mistake("a in 1..3 4", "1:11: an operator or the end of the line must follow, not \"4\"");
  mistake("a in 3..1", "1:6: 3..1 has no values");
  mistake("a in {1, 5..4}", "1:10: 5..4 has no values");
  mistake("a in {}", "1:7: a number, a name or a bracket must follow");
  mistake("a in 1..3 step 0", "1:16: a step must be at least 1, not 0");
  mistake("a in 1..3; b in 1..a", "1:20: a constant must stand here");
  mistake("a in 1..3; let a = 2", "1:16: there is a 'a' already");
  mistake("let max = 2", "1:5: 'max' has a meaning of its own");
  mistake("in in 1..2", "1:1: 'in' has a meaning of its own and cannot be a name");
  mistake("a in 1.5..3", "1:6: numbers are whole");
  mistake("a in 1..3a", "a name must not begin with a digit");
  mistake("a in 1..99999999999999999999", "1:9: a number must be at most 4611686018427387903");
  mistake("a in 1..3 $", "1:11: \"$\" means nothing here");
  mistake("\"open: 1 < 2", "1:1: the quote is not closed");
  mistake("\"\": 1 < 2", "1:1: a constraint must not have an empty name");
  mistake("minimise 1; maximise 2", "1:13: there is a cost already");
  mistake("a in 0..3\nfits: 7 % a == 1", "2:1: constraint \"fits\": the divisor 'a' can be 0");
  mistake("a in 1..4611686018427387903\n  a * a <= 3", "2:3: constraint \"a * a <= 3\": 'a * a' can go beyond");
  mistake("1 < 2 / 0", "1:1: 2 is divided by 0");
  mistake("ceil_div(1, 2, 3) < 2", "1:1: ceil_div takes 2 numbers, not 3");
  mistake(std::string(1000, '(') + "1", "nested too deeply");
  mistake("a in 0..1; " + std::string(1000, '!') + "a", "nested too deeply");
}

}  // namespace
}  // namespace penstock::csp::test
