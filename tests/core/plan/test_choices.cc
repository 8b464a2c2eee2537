// For the problems of tests/core/plan/choices.txt, most of shapes that were measured or that rules alone plan, the
// planner chooses the plan that stands there, or another plan of the same cost. Where rules alone decide, without a
// cost, it chooses exactly that plan. test_best_plans.cc checks properties of all plans. After a deliberate change of
// rules or costs, PENSTOCK_WRITE_CHOICES=FILE writes the same lines anew; measure the plans that changed.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "plan/choices.h"

namespace penstock::plan {
namespace {

struct Known {
  std::string plan;
  double cost = 0;
};

std::map<std::string, Known> known_choices() {
  std::map<std::string, Known> known;
  std::ifstream file(PENSTOCK_CHOICES);
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(" | "), last = line.rfind(" | ");
    known[line.substr(0, first)] = {line.substr(first + 3, last - first - 3),
                                    std::strtod(line.c_str() + last + 3, nullptr)};
  }
  return known;
}

TEST(PlanChoices, AreThoseThatWereMeasured) {
  const std::map<std::string, Known> known = known_choices();
  std::vector<test::Choice> choices;
  test::visit_problems([&](const auto& problem, const auto& machine) {
    test::Choice choice = test::choice_of(problem, machine);
    if (known.contains(choice.problem)) choices.push_back(std::move(choice));
  });
  ASSERT_GT(known.size(), 80u);
  ASSERT_EQ(choices.size(), known.size());
  if (const char* path = std::getenv("PENSTOCK_WRITE_CHOICES")) {
    std::ofstream file(path);
    for (const test::Choice& choice : choices)
      file << fmt::format("{} | {} | {:.9g}\n", choice.problem, choice.plan, choice.cost);
    return;
  }
  for (const test::Choice& choice : choices) {
    const Known& wanted = known.at(choice.problem);
    if (wanted.cost == 0) {
      EXPECT_EQ(choice.plan, wanted.plan) << choice.problem;
    }
    constexpr double rounding = 1e-6;
    EXPECT_NEAR(choice.cost, wanted.cost, rounding * wanted.cost)
        << choice.problem << ": " << choice.plan << ", not " << wanted.plan;
  }
}

}  // namespace
}  // namespace penstock::plan
