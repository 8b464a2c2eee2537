// The planner chooses for some hundreds of shapes what it chose when its choices were measured, or what the same costs
// say is as quick or quicker. PENSTOCK_WRITE_CHOICES=FILE writes what it chooses now.

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

TEST(PlanChoices, AreAsGoodAsThoseThatWereMeasured) {
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
    if (choice.plan == found->second.plan || found->second.plan == "refused") continue;
    constexpr double rounding = 1e-6;
    EXPECT_GT(found->second.cost, 0) << choice.problem << ": " << choice.plan << ", not " << found->second.plan;
    EXPECT_LE(choice.cost, found->second.cost * (1 + rounding)) << choice.problem << ": " << choice.plan;
  }
}

}  // namespace
}  // namespace penstock::plan
