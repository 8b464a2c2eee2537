// The planner chooses for some hundreds of shapes what tests/plan/choices.txt says, at the cost that stands there, or
// another plan of the same cost. Where rules alone decide, without a cost, it chooses exactly that plan. After a deliberate change of rules or costs, PENSTOCK_WRITE_CHOICES=FILE writes the
// choices anew, and the plans that changed are to be measured.

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
  const std::vector<test::Choice> choices = test::all_choices();
  if (const char* path = std::getenv("PENSTOCK_WRITE_CHOICES")) {
    std::ofstream file(path);
    for (const test::Choice& choice : choices)
      file << fmt::format("{} | {} | {:.9g}\n", choice.problem, choice.plan, choice.cost);
    return;
  }
  ASSERT_GT(choices.size(), 250u);
  EXPECT_EQ(known.size(), choices.size());
  for (const test::Choice& choice : choices) {
    const auto found = known.find(choice.problem);
    ASSERT_NE(found, known.end()) << choice.problem;
    if (choice.cost == 0) {
      EXPECT_EQ(choice.plan, found->second.plan) << choice.problem;
    }
    constexpr double rounding = 1e-6;
    EXPECT_NEAR(choice.cost, found->second.cost, rounding * found->second.cost)
        << choice.problem << ": " << choice.plan << ", not " << found->second.plan;
  }
}

}  // namespace
}  // namespace penstock::plan
