#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "penstock/csp.h"
#include "support/expect_error.h"

/// The C++ interface: costs, explanations, and what is refused.
namespace penstock::csp::test {
namespace {

using penstock::test::expect_error;

/// Warps and tiles, with room for a few of them.
struct Plan {
  Model m;
  Expression warps = m.var("warps", {1, 2, 4, 8});
  Expression tile = m.var("tile", divisors(48));

  Plan() {
    m.require("registers fit", warps * tile <= 64);
    m.require("tiles cover the units", warps * tile >= 48);
    m.require("whole tiles of 8", tile % 8 == 0);
  }
};

TEST(CspModel, FindsVariablesByNameAndBoundsOfExpressions) {
  Model m = parse("x in {2, 5}; y in -3..4");
  const auto x = m.variable("x"), y = m.variable("y");
  ASSERT_TRUE(x && y);
  EXPECT_FALSE(m.variable("z"));
  m.require(*x + *y == 1);
  ASSERT_TRUE(m.solve());
  EXPECT_EQ((*m.solve())["y"], -1);
  const Range both = (*x * *y).bounds();
  EXPECT_EQ(both.low, -15);
  EXPECT_EQ(both.high, 20);
  EXPECT_EQ(Expression(7).bounds().low, 7);
}

TEST(CspModel, TheBestUnderAWholeCost) {
  Plan p;
  p.m.minimise(p.tile + p.warps * 3);
  auto best = p.m.solve();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->text(), "warps = 4, tile = 16");
  EXPECT_EQ(best->cost(), 28);
  EXPECT_EQ((*best)["tile"], 16);
  EXPECT_EQ((*best)[p.warps * p.tile], 64);
  p.m.maximise(p.tile * 10 - p.warps);
  best = p.m.solve();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->text(), "warps = 1, tile = 48");
  EXPECT_EQ(best->cost(), 479);
  EXPECT_EQ(p.m.cost()->text(), "tile * 10 - warps");
}

TEST(CspModel, RealCosts) {
  Plan p;
  const auto time = [](double warps, double tile) { return std::max(tile / 3.0, 20.0 / warps) + 0.25 * warps; };
  int asked = 0;
  p.m.minimise([&, warps = p.warps, tile = p.tile](const Box& at) {
    ++asked;
    return max(at(tile) / 3.0, 20.0 / at(warps)) + 0.25 * at(warps);
  });
  EXPECT_FALSE(p.m.cost());
  const auto by_interval = p.m.solve();
  ASSERT_TRUE(by_interval);
  EXPECT_GT(asked, 0);
  double least = std::numeric_limits<double>::infinity();
  p.m.for_each([&](const Solution& at) {
    const double cost = time(static_cast<double>(at["warps"]), static_cast<double>(at["tile"]));
    EXPECT_EQ(at.cost(), cost);  // the very same operations on single numbers
    least = std::min(least, cost);
    return true;
  });
  EXPECT_EQ(by_interval->cost(), least);

  const auto whole = [&](const Solution& at) {
    return time(static_cast<double>(at["warps"]), static_cast<double>(at["tile"]));
  };
  p.m.minimise(whole);
  EXPECT_EQ(p.m.solve()->values(), by_interval->values());
  p.m.minimise(whole, [tile = p.tile](const Box& at) { return static_cast<double>(at.range(tile).low) / 3.0; });
  EXPECT_EQ(p.m.solve()->values(), by_interval->values());
}

TEST(CspModel, IntervalsHoldWhatTheirNumbersGive) {
  const Interval a(-2, 3), b(4, 5), infinite(0, std::numeric_limits<double>::infinity());
  const auto expect = [](const Interval& x, double low, double high) {
    EXPECT_EQ(x.low, low);
    EXPECT_EQ(x.high, high);
  };
  expect(a + b, 2, 8);
  expect(a - b, -7, -1);
  expect(a * b, -10, 15);
  expect(a / b, -0.5, 0.75);
  expect(min(a, b), -2, 3);
  expect(max(a, b), 4, 5);
  EXPECT_EQ((b / a).high, std::numeric_limits<double>::infinity());
  EXPECT_EQ((Interval(0) * infinite).low, -std::numeric_limits<double>::infinity());
}

/// A function of the caller's in place of the expression that says the same.
TEST(CspModel, CallsFunctions) {
  const auto solutions = [](bool called) {
    Model m;
    const auto a = m.var("a", range(1, 12)), b = m.var("b", {1, 2, 4, 8}), c = m.var("c", range(0, 5));
    const auto bytes =
        called ? m.call("bytes", {a, b, c},
                        [](std::span<const Integer> v) { return v[0] * v[1] + v[2] * v[2] + v[0] / v[1]; }, {0, 1000})
               : a * b + c * c + a / b;
    m.require("fits", bytes <= 30);
    m.require("even", bytes % 2 == 0);
    m.require("odd sum", (a + b + c) % 2 == 1);
    m.minimise(100 - bytes);
    std::vector<std::vector<Integer>> all;
    for (const Solution& solution : m.all()) {
      EXPECT_EQ(solution[bytes], 100 - static_cast<Integer>(solution.cost()));
      all.push_back(solution.values());
    }
    return all;
  };
  EXPECT_GT(solutions(true).size(), 20u);
  EXPECT_EQ(solutions(true), solutions(false));
}

TEST(CspModel, FunctionsTakePartInReasons) {
  Model m;
  const auto a = m.var("a", range(1, 9));
  const auto square = m.call("square", {a + 1}, [](std::span<const Integer> v) { return v[0] * v[0]; }, {0, 100});
  m.require("small", square <= 3);
  m.require("some", a >= 1);
  EXPECT_EQ(m.constraint_text("small"), "square(a + 1) <= 3");
  EXPECT_EQ(m.conflict(), std::vector<std::string>{"small"});
  Model wrong;
  const auto b = wrong.var("b", range(1, 9));
  wrong.require("c", wrong.call("f", {b}, [](std::span<const Integer>) { return Integer{7}; }, {0, 3}) <= 2);
  expect_error(ErrorCode::numerical, "\"f\" gave 7, and was said to give 0 to 3", [&] { wrong.solve(); });
  const auto refused = [](const std::string& text, auto&& state) {
    expect_error(ErrorCode::invalid_argument, text, state);
  };
  const auto one = [](std::span<const Integer>) { return Integer{1}; };
  refused("'g' must have 1 to 8 arguments, not 0", [&] { m.call("g", {}, one, {0, 1}); });
  refused("a function must be named", [&] { m.call("two words", {a}, one, {0, 1}); });
  refused("belongs to another model", [&] { m.call("g", {b}, one, {0, 1}); });
  refused("the bounds of 'g' must be", [&] { m.call("g", {a}, one, {1, 0}); });
  refused("'g' must not be empty", [&] { m.call("g", {a}, nullptr, {0, 1}); });
}

TEST(CspModel, AllSolutionsAreSorted) {
  Plan p;
  std::vector<std::string> texts;
  for (const Solution& solution : p.m.all()) texts.push_back(solution.text());
  EXPECT_EQ(texts, (std::vector<std::string>{"warps = 1, tile = 48", "warps = 2, tile = 24", "warps = 4, tile = 16",
                                             "warps = 8, tile = 8"}));
  p.m.minimise(p.tile + p.warps * 3);
  texts.clear();
  for (const Solution& solution : p.m.all(2)) texts.push_back(solution.text());
  EXPECT_EQ(texts, (std::vector<std::string>{"warps = 4, tile = 16", "warps = 2, tile = 24"}));
  EXPECT_TRUE(p.m.all(0).empty());
  int seen = 0;
  p.m.for_each([&](const Solution&) { return ++seen < 3; });
  EXPECT_EQ(seen, 3);
}

TEST(CspModel, ExplainsWhatWasNotTaken) {
  Plan p;
  p.m.require("few warps", p.warps <= 4);
  p.m.minimise(p.tile + p.warps * 3);
  const Explanation explanation = p.m.explain();
  ASSERT_TRUE(explanation.best);
  EXPECT_EQ(explanation.text(),
            "warps = 4, tile = 16, cost 28\n"
            "  warps = 1: possible at 51\n"
            "  warps = 2: possible at 30\n"
            "  warps = 8: excluded by 'few warps'\n"
            "  tile = 1, 2, 3, 4, 6: excluded by 'whole tiles of 8'\n"
            "  tile = 8: excluded by 'tiles cover the units', 'few warps' together\n"
            "  tile = 12: excluded by 'whole tiles of 8'\n"
            "  tile = 24: possible at 30\n"
            "  tile = 48: possible at 51\n");
  const Explanation short_one = p.m.explain(2);
  EXPECT_EQ(short_one.alternatives.size(), 4u);
  EXPECT_EQ(short_one.left_out, 8);
}

TEST(CspModel, ExplainsConflicts) {
  Plan p;
  p.m.require("long tiles", p.tile > 24);
  p.m.require("two warps", p.warps == 2);
  EXPECT_FALSE(p.m.solve());
  EXPECT_EQ(p.m.conflict(), (std::vector<std::string>{"registers fit", "long tiles", "two warps"}));
  EXPECT_EQ(p.m.explain().text(), "no solution: 'registers fit', 'long tiles', 'two warps' cannot hold together\n");
}

TEST(CspModel, ConstraintsOfOneNameAreOne) {
  Model m;
  const auto a = m.var("a", range(0, 3)), b = m.var("b", range(0, 3));
  m.require("small", a <= 1);
  m.require("small", b <= 1);
  m.require(a + b == 3);
  EXPECT_EQ(m.conflict(), (std::vector<std::string>{"small", "a + b == 3"}));
  EXPECT_EQ(m.constraint_text("small"), "a <= 1; b <= 1");
}

TEST(CspModel, Texts) {
  Model m;
  const auto a = m.var("a", range(1, 9)), b = m.var("b", {1, 2, 4});
  EXPECT_EQ((a - (b - 1) * (a + 2)).text(), "a - (b - 1) * (a + 2)");
  EXPECT_EQ((a * (b / 2) % 3).text(), "a * (b / 2) % 3");
  EXPECT_EQ(min(a, max(b, 3)).text(), "min(a, max(b, 3))");
  EXPECT_EQ(select(a < b, a, b).text(), "if(a < b, a, b)");
  EXPECT_EQ(implies(a == 1 && b != 2, !(a >= b) || a % 2 == 0).text(), "a == 1 and b != 2 -> b <= a -> a % 2 == 0");
  EXPECT_EQ(((a == 1 || b == 1) && a < 3).text(), "(a == 1 or b == 1) and a < 3");
  EXPECT_EQ(Constraint(Expression(1) == 2).text(), "false");
  EXPECT_EQ(divisors(12).text(), "{1, 2, 3, 4, 6, 12}");
  EXPECT_EQ(powers_of_two(3, 17).text(), "{4, 8, 16}");
  EXPECT_EQ(multiples(8, -9, 20).text(), "{-8, 0, 8, 16}");
  EXPECT_EQ(Domain({3, 1, 2, 2}).text(), "1..3");
}

TEST(CspModel, SolutionsOutliveTheirModel) {
  std::optional<Solution> best;
  {
    Plan p;
    Model moved = std::move(p.m);
    best = moved.solve();
  }
  ASSERT_TRUE(best);
  EXPECT_GE((*best)["warps"] * (*best)["tile"], 48);
}

TEST(CspModel, LongDomains) {
  Model m;
  const auto a = m.var("a", range(0, largest)), b = m.var("b", range(-largest, 0));
  m.require("sum", a + b == 12345678901234567);
  m.require("far", a >= 98765432109876543);
  const auto found = m.solve();
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)[a] + (*found)[b], 12345678901234567);
  m.minimise(a);
  EXPECT_EQ((*m.solve())[a], 98765432109876543);
}

TEST(CspModel, StopsWhenAsked) {
  Model m;
  std::vector<Expression> pigeons;
  for (int i = 0; i < 12; ++i) pigeons.push_back(m.var("pigeon" + std::to_string(i), range(1, 11)));
  m.require("holes", all_different(pigeons));
  int asked = 0;
  m.stop_when([&] { return ++asked == 3; });
  expect_error(ErrorCode::interrupted, "stopped after 3072 steps", [&] { m.solve(); });
}

TEST(CspModel, RefusesWhatCouldOverflow) {
  const auto refused = [](const std::string& text, auto&& state) {
    Model m;
    expect_error(ErrorCode::invalid_argument, text, [&] { state(m); });
  };
  const Integer big = Integer{1} << 32;
  refused("constraint \"bytes\": 'a * b' can go beyond 4611686018427387903", [&](Model& m) {
    const auto a = m.var("a", range(1, big)), b = m.var("b", range(1, big));
    m.require("bytes", a * b / 2 <= 4);
  });
  refused("constraint \"a + b <= 3\": 'a + b' can go beyond", [](Model& m) {
    const auto a = m.var("a", range(1, largest)), b = m.var("b", range(1, largest));
    m.require(a + b <= 3);
  });
  refused("the cost: 'a * a * a' can go beyond", [](Model& m) {
    const auto a = m.var("a", range(1, Integer{1} << 30));
    m.minimise(a * a * a);
  });
  refused("constraint \"c\": the divisor 'a - 1' can be 0", [](Model& m) {
    const auto a = m.var("a", range(1, 3));
    m.require("c", 12 % (a - 1) == 0);
  });
  refused("constraint \"c\": 4611686018427387904 is beyond",
          [](Model& m) { m.require("c", m.var("a", range(0, 1)) < largest + 1); });
  refused("a domain must stay within", [](Model& m) { m.var("a", range(0, largest + 1)); });
  refused("a domain must stay within", [](Model& m) { m.var("a", {0, std::numeric_limits<Integer>::min()}); });
  refused("7 is divided by 0", [](Model&) { Expression(7) / 0; });
  refused("leads beyond", [](Model&) { Expression(largest) * largest; });
  refused("a constant beyond 64 bits", [](Model&) { Expression(std::numeric_limits<std::uint64_t>::max()); });
  refused("more than 5000 operations one inside the other", [](Model& m) {
    const auto a = m.var("a", range(0, 1));
    Expression sum = a;
    for (int i = 0; i < 6000; ++i) sum = sum + a;
    m.require("sum", sum <= 3);
  });
}

TEST(CspModel, RefusesWhatIsWrong) {
  Model m, other;
  const auto a = m.var("a", range(0, 3)), b = other.var("b", range(0, 3));
  const auto refused = [](const std::string& text, auto&& state) {
    expect_error(ErrorCode::invalid_argument, text, state);
  };
  refused("there is a variable 'a' already", [&] { m.var("a", {1}); });
  refused("not \"two words\"", [&] { m.var("two words", {1}); });
  refused("must have at least one value", [&] { m.var("c", Domain(std::vector<Integer>{})); });
  refused("which 3..2 has not", [&] { range(3, 2); });
  refused("not of 0", [&] { divisors(0); });
  refused("there is no power of two from 5 to 7", [&] { powers_of_two(5, 7); });
  refused("there is no multiple of 8 from 9 to 15", [&] { multiples(8, 9, 15); });
  refused("belongs to another model", [&] { a + b; });
  refused("belongs to another model", [&] { m.require("x", b <= 3); });
  refused("belongs to another model", [&] { (*m.solve())[b]; });
  refused("there is no variable \"b\"", [&] { (*m.solve())["b"]; });
  refused("there is no constraint \"none\"", [&] { m.constraint_text("none"); });
  refused("must be a function", [&] { m.minimise(std::function<Interval(const Box&)>()); });
  m.minimise([](const Solution&) { return std::nan(""); });
  expect_error(ErrorCode::numerical, "the cost of a = 0 is not a number", [&] { m.solve(); });
}

}  // namespace
}  // namespace penstock::csp::test
