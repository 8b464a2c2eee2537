// Problems that are solved ahead are those that are solved when asked for.

#include <gtest/gtest.h>

#include "bench/suite/solver.h"
#include "bench/suite/tables.h"
#include "penstock/error.h"

namespace penstock::bench {
namespace {

Case case_of(const std::string& cell, Index hidden, Pass pass = Pass::training) {
  Case test;
  test.cell = cell;
  test.shape = {2, 150, 3, hidden, 1};
  test.pass = pass;
  return test;
}

std::vector<Case> some_cases() {
  std::vector<Case> cases;
  for (const Index hidden : {1, 4, 7}) {
    for (const char* cell : {"lstm", "mingru", "gru"}) cases.push_back(case_of(cell, hidden));
    cases.push_back(case_of("elman", hidden, Pass::forward));
  }
  return cases;
}

TEST(Solver, AnswersInOrderWhateverIsSolvedAhead) {
  const std::vector<Case> cases = some_cases();
  for (const std::size_t ahead : {0, 1, 5, 100}) {
    SCOPED_TRACE(ahead);
    Solver solver(cases, 7, ahead);
    for (const Case& test : cases) {
      SCOPED_TRACE(test.label());
      const Solved solved = solver.next();
      const Problem problem = make_problem(test, 7);
      EXPECT_EQ(solved.problem.test.label(), test.label());
      EXPECT_EQ(solved.problem.x, problem.x);
      const Answers<double> want = solve(problem);
      EXPECT_EQ(solved.want.y, want.y);
      EXPECT_EQ(solved.want.dx, want.dx);
      EXPECT_EQ(solved.want.gradients, want.gradients);
    }
    EXPECT_THROW(solver.next(), std::out_of_range);
  }
}

TEST(Solver, PassesErrorsOnAndEndsWithCasesLeft) {
  std::vector<Case> cases = some_cases();
  Case refused = case_of("lstm", 4);
  refused.shape.heads = 3;
  cases.insert(cases.begin() + 1, refused);
  Solver solver(cases, 7, 3);
  EXPECT_NO_THROW(solver.next());
  EXPECT_THROW(solver.next(), Error);
  EXPECT_NO_THROW(solver.next());
}

TEST(Solver, StopsWhenAskedTo) {
  Case large = case_of("lstm", 64);
  large.shape.steps = 100'000;
  Solver solver({case_of("lstm", 4), large, large}, 7, 2);
  EXPECT_NO_THROW(solver.next());
  try {
    solver.next([] { return true; });
    FAIL() << "a case of minutes was solved at once";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::interrupted);
  }
}

}  // namespace
}  // namespace penstock::bench
