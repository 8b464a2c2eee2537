#include <gtest/gtest.h>

#include <map>

#include "penstock/csp.h"

/// Problems whose answers everybody knows.
namespace penstock::csp::test {
namespace {

Model queens(int n) {
  Model m;
  std::vector<Expression> columns, rising, falling;
  for (int row = 0; row < n; ++row) {
    const Expression column = m.var("row" + std::to_string(row), range(1, n));
    columns.push_back(column);
    rising.push_back(column + row);
    falling.push_back(column - row);
  }
  m.require("columns", all_different(columns));
  m.require("rising diagonals", all_different(rising));
  m.require("falling diagonals", all_different(falling));
  return m;
}

TEST(Csp, Queens) {
  const std::map<int, std::size_t> counts = {{1, 1}, {2, 0}, {3, 0}, {4, 2}, {5, 10}, {6, 4}, {7, 40}, {8, 92}};
  for (const auto& [n, count] : counts) EXPECT_EQ(queens(n).all().size(), count) << n << " queens";
  EXPECT_TRUE(queens(20).first().has_value());
  // Three queens have room in rows and columns, but not with the diagonals.
  EXPECT_EQ(queens(3).conflict(), (std::vector<std::string>{"columns", "rising diagonals", "falling diagonals"}));
}

TEST(Csp, MagicSquare) {
  Model m;
  std::vector<Expression> x;
  for (int i = 0; i < 9; ++i) x.push_back(m.var("x" + std::to_string(i), range(1, 9)));
  m.require("different", all_different(x));
  for (int i = 0; i < 3; ++i) {
    m.require("rows", x[3 * i] + x[3 * i + 1] + x[3 * i + 2] == 15);
    m.require("columns", x[i] + x[i + 3] + x[i + 6] == 15);
  }
  m.require("diagonals", x[0] + x[4] + x[8] == 15 && x[2] + x[4] + x[6] == 15);
  const auto all = m.all();
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all.front().values(), (std::vector<Integer>{2, 7, 6, 9, 5, 1, 4, 3, 8}));
  for (const Solution& solution : all) EXPECT_EQ(solution["x4"], 5);
}

TEST(Csp, SendMoreMoney) {
  Model m;
  std::map<char, Expression> digit;
  std::vector<Expression> all;
  for (const char c : std::string("SENDMORY")) {
    all.push_back(m.var(std::string(1, c), range(c == 'S' || c == 'M' ? 1 : 0, 9)));
    digit.emplace(c, all.back());
  }
  const auto word = [&](const std::string& letters) {
    Expression value = 0;
    for (const char c : letters) value = value * 10 + digit.at(c);
    return value;
  };
  m.require("different", all_different(all));
  m.require("sum", word("SEND") + word("MORE") == word("MONEY"));
  const auto solutions = m.all();
  ASSERT_EQ(solutions.size(), 1u);
  EXPECT_EQ(solutions[0][word("SEND")], 9567);
  EXPECT_EQ(solutions[0][word("MORE")], 1085);
  EXPECT_EQ(solutions[0][word("MONEY")], 10652);
}

TEST(Csp, PythagoreanTriples) {
  Model m;
  const auto a = m.var("a", range(1, 100)), b = m.var("b", range(1, 100)), c = m.var("c", range(1, 100));
  m.require("right angle", a * a + b * b == c * c);
  m.require("order", a <= b);
  EXPECT_EQ(m.all().size(), 52u);
}

TEST(Csp, Knapsack) {
  // Weights 12, 2, 1, 4, 1, values 4, 2, 1, 10, 2, at most 15: all but the heaviest one.
  Model m;
  const Integer weights[] = {12, 2, 1, 4, 1}, values[] = {4, 2, 1, 10, 2};
  Expression weight = 0, value = 0;
  for (int i = 0; i < 5; ++i) {
    const auto taken = m.var("item" + std::to_string(i), {0, 1});
    weight = weight + taken * weights[i];
    value = value + taken * values[i];
  }
  m.require("weight", weight <= 15);
  m.maximise(value);
  const auto best = m.solve();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->cost(), 15);
  EXPECT_EQ(best->values(), (std::vector<Integer>{0, 1, 1, 1, 1}));
}

/// How a matrix in registers is spread over warps and blocks: every size divides its whole.
TEST(Csp, TilesThatDivide) {
  Model m;
  const Integer H = 768, threads_of_warp = 32, registers = 65536;
  const auto tile = m.var("tile", divisors(H));
  const auto blocks = m.var("blocks", divisors(H));
  const auto warps = m.var("warps", {1, 2, 4, 8, 16});
  const auto stages = m.var("stages", range(1, 4));
  m.require("tiles cover the units", tile * blocks == H);
  m.require("a warp has whole tiles of 8", tile % (warps * 8) == 0);
  m.require("registers fit", ceil_div(tile * H, warps * threads_of_warp * 2) * warps * threads_of_warp <= registers);
  m.require("shared memory fits", stages * tile * 16 * 2 + H * 16 * 2 <= 99 * 1024);
  m.require("few blocks need no second stage", implies(blocks <= 8, stages == 1));
  m.minimise(blocks * 10 + ceil_div(tile, warps) + 4 / stages);
  const auto best = m.solve();
  ASSERT_TRUE(best);
  // By hand: 48 units a block are the most that registers hold if 16 divides 48 / warps * ... ; checked by enumeration.
  Integer least = largest;
  for (const Solution& solution : m.all()) least = std::min(least, static_cast<Integer>(solution.cost()));
  EXPECT_EQ(best->cost(), static_cast<double>(least));
  EXPECT_EQ((*best)[tile] * (*best)[blocks], H);
  EXPECT_EQ((*best)[tile] % ((*best)[warps] * 8), 0);
}

}  // namespace
}  // namespace penstock::csp::test
