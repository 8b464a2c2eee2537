#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "csp/random_problem.h"

/// The solver against brute force on small random problems: PENSTOCK_CSP_PROBLEMS of them, by default 10,000.
namespace penstock::csp::test {
namespace {

int problems() {
  const char* text = std::getenv("PENSTOCK_CSP_PROBLEMS");
  return text == nullptr ? 10000 : std::atoi(text);
}

std::vector<std::vector<Integer>> values_of(const std::vector<Solution>& solutions) {
  std::vector<std::vector<Integer>> all;
  for (const Solution& solution : solutions) all.push_back(solution.values());
  std::sort(all.begin(), all.end());
  return all;
}

/// The conflict cannot hold together, and holds without any one of its constraints.
void check_conflict(const Problem& problem) {
  const std::vector<std::string> conflict = problem.model.conflict();
  std::vector<bool> chosen(problem.constraints.size());
  for (const std::string& name : conflict) chosen[std::stoul(name.substr(5)) - 1] = true;
  EXPECT_TRUE(by_brute_force(problem, chosen).empty());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) continue;
    std::vector<bool> fewer = chosen;
    fewer[i] = false;
    EXPECT_FALSE(by_brute_force(problem, fewer).empty()) << "without " << i + 1;
  }
}

void check_best(Problem& problem, const std::vector<std::vector<Integer>>& expected) {
  std::optional<Integer> least, most;
  for (const auto& values : expected) {
    const Integer cost = evaluate(problem.cost, values);
    least = std::min(cost, least.value_or(cost));
    most = std::max(cost, most.value_or(cost));
  }
  const auto check = [&](const std::optional<Solution>& best, const std::optional<Integer>& cost) {
    ASSERT_EQ(best.has_value(), cost.has_value());
    if (!best) return;
    EXPECT_TRUE(std::binary_search(expected.begin(), expected.end(), best->values()));
    EXPECT_EQ(evaluate(problem.cost, best->values()), *cost);
    EXPECT_EQ(best->cost(), static_cast<double>(*cost));
  };
  check(problem.model.solve(), least);
  const Expression cost = *problem.model.cost();
  EXPECT_EQ(cost.text(), problem.model.cost()->text());
  problem.model.maximise(cost);
  check(problem.model.solve(), most);
  problem.model.minimise([cost](const Box& at) { return at(cost); });
  check(problem.model.solve(), least);
  problem.model.minimise([&](const Solution& at) { return static_cast<double>(at[cost]); });
  check(problem.model.solve(), least);
}

TEST(Csp, AgreesWithBruteForce) {
  Random random(7);
  int solvable = 0, conflicting = 0;
  for (int i = 0; i < problems(); ++i) {
    Problem problem = random_problem(random);
    SCOPED_TRACE("problem " + std::to_string(i) + ":\n" + problem.text);
    const auto expected = by_brute_force(problem);
    ASSERT_EQ(values_of(problem.model.all()), expected);
    ASSERT_EQ(values_of(parse(problem.text).all()), expected);
    if (expected.empty()) {
      ++conflicting;
      check_conflict(problem);
    } else {
      ++solvable;
      EXPECT_TRUE(problem.model.conflict().empty());
    }
    check_best(problem, expected);
    if (testing::Test::HasFailure()) return;
  }
  // Both kinds must come up often for this to test anything.
  EXPECT_GT(solvable, problems() / 5);
  EXPECT_GT(conflicting, problems() / 5);
}

/// Domains too long for bits and for trying values: bounds alone have to do.
TEST(Csp, AgreesWithBruteForceOnLongDomains) {
  Random random(8);
  for (int i = 0; i < problems() / 100; ++i) {
    Problem problem;
    problem.domains.resize(2);
    for (int x = 0; x < 2; ++x) {
      const Integer first = random.below(20) - 10, last = first + (x == 0 ? 5000 : 3);
      for (Integer value = first; value <= last; ++value) problem.domains[x].push_back(value);
      problem.variables.push_back(problem.model.var(std::string(1, static_cast<char>('a' + x)), range(first, last)));
    }
    Generator generator(random, 2);
    while (problem.constraints.size() < 2) {
      // A sum, product or quotient that is a certain number, or nearly so.
      const Tree tree{"=<l" [random.below(3)], 0, {
                        generator.number(1), {
                          'c', random.below(4000), {}
                        }
                      }};
      try {
        problem.model.require("rule " + std::to_string(problem.constraints.size() + 1),
                              condition(tree, problem.variables));
        problem.constraints.push_back(tree);
      } catch (const Error&) {
      }
    }
    const auto expected = by_brute_force(problem);
    ASSERT_EQ(values_of(problem.model.all()), expected) << problem.model.constraint_text("rule 1");
    if (expected.empty()) check_conflict(problem);
  }
}

}  // namespace
}  // namespace penstock::csp::test
