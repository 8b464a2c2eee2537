// What the planner chooses, what it refuses, and that it says why.

#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

Problem problem(const char* cell, Index rows, Index steps, Index hidden, int threads) {
  Problem p;
  p.cell = &cell_traits(cell);
  p.rows = rows;
  p.steps = steps;
  p.hidden = hidden;
  p.threads = threads;
  return p;
}

TEST(Plan, RowsComeFirst) {
  const Plan plan = make_plan(problem("lstm", 16, 100, 128, 4), {});
  EXPECT_EQ(plan.row_parts, 4);
  EXPECT_EQ(plan.channel_parts, 1);
  EXPECT_EQ(plan.algorithm, Algorithm::sequential);
}

TEST(Plan, OneRowOfALargeCellSharesItsUnits) {
  EXPECT_EQ(make_plan(problem("lstm", 1, 100, 512, 2), {}).channel_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 1, 100, 64, 2), {}).channel_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 1, 100, 64, 8), {}).channel_parts, 2) << "a barrier of more threads costs more";
  EXPECT_EQ(make_plan(problem("lstm", 1, 100, 32, 2), {}).channel_parts, 1);
}

void expect_two_share_a_large_matrix(Index rows) {
  const Plan plan = make_plan(problem("lstm", rows, 100, 512, 2), {});
  EXPECT_EQ(plan.row_parts, 1) << rows;
  EXPECT_EQ(plan.channel_parts, 2) << rows;
}

TEST(DensePlan, FewRowsShareALargeMatrix) {
  for (const Index rows : {2, 3, 7}) {
    expect_two_share_a_large_matrix(rows);
    EXPECT_EQ(make_plan(problem("lstm", rows, 100, 32, 2), {}).row_parts, 2) << rows;
  }
  EXPECT_EQ(make_plan(problem("lstm", 2, 100, 128, 2), {}).row_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 8, 100, 128, 2), {}).row_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 8, 100, 512, 8), {}).row_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 8, 100, 512, 8), {}).channel_parts, 4);
}

TEST(DensePlan, PairsShareALargeMatrixUntilEachHasRowsEnough) {
  for (const Index rows : {8, 16, 23}) expect_two_share_a_large_matrix(rows);
  EXPECT_EQ(make_plan(problem("lstm", 24, 100, 512, 2), {}).row_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 16, 100, 512, 4), {}).row_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 16, 100, 512, 4), {}).channel_parts, 2);
  EXPECT_EQ(make_plan(problem("lstm", 15, 100, 512, 3), {}).row_parts, 3);
}

TEST(Plan, NeverMoreThreadsThanAllowed) {
  for (const CellTraits& cell : cell_table()) {
    for (const Index rows : {1, 2, 3, 7, 64}) {
      for (const Index hidden : {1, 16, 100, 1024}) {
        for (const int threads : {1, 2, 3, 8, 64}) {
          Problem p = problem("lstm", rows, 5000, hidden, threads);
          p.cell = &cell;
          const Plan plan = make_plan(p, {});
          EXPECT_GE(plan.threads(), 1);
          EXPECT_LE(plan.threads(), threads) << plan.explain();
        }
      }
    }
  }
}

TEST(Plan, ScansInChunksOnlyWhenRowsAndChannelsAreTooFew) {
  EXPECT_EQ(make_plan(problem("mingru", 8, 65536, 256, 4), {}).algorithm, Algorithm::sequential);
  EXPECT_EQ(make_plan(problem("mingru", 1, 65536, 64, 8), {}).algorithm, Algorithm::scan);
  EXPECT_EQ(make_plan(problem("mingru", 1, 100, 64, 4), {}).algorithm, Algorithm::sequential);
  EXPECT_EQ(make_plan(problem("mingru", 1, 65536, 16, 2), {}).algorithm, Algorithm::scan);
  Problem wide = problem("mingru", 1, 4096, 512, 2);
  wide.channels_each = 1024;
  EXPECT_EQ(make_plan(wide, {}).algorithm, Algorithm::scan) << "a thread takes more channels than there are";
}

TEST(Plan, NarrowScansNeedMoreThreadsToMakeUpForASecondPass) {
  EXPECT_EQ(make_plan(problem("mingru", 1, 65536, 8, 2), {}).algorithm, Algorithm::sequential);
  EXPECT_EQ(make_plan(problem("mingru", 1, 65536, 8, 4), {}).algorithm, Algorithm::scan);
}

TEST(Plan, ExactModeNeverCutsASequence) {
  Problem p = problem("minlstm", 1, 65536, 64, 8);
  p.exact = true;
  EXPECT_EQ(make_plan(p, {}).algorithm, Algorithm::sequential);
  p.algorithm = Algorithm::scan;
  test::expect_error(ErrorCode::invalid_argument, "exact mode", [&] { make_plan(p, {}); });
}

TEST(Plan, DenseCellsCannotScan) {
  Problem p = problem("gru", 1, 100, 64, 1);
  p.algorithm = Algorithm::scan;
  test::expect_error(ErrorCode::invalid_argument, "gates depend on the previous state", [&] { make_plan(p, {}); });
}

TEST(Plan, ExplainsItself) {
  EXPECT_THAT(make_plan(problem("lstm", 16, 100, 128, 4), {}).explain(), HasSubstr("rows are independent"));
  EXPECT_THAT(make_plan(problem("mingru", 1, 65536, 64, 8), {}).explain(), HasSubstr("chunks of 1024"));
}

TEST(Plan, EqualProblemsGetEqualPlans) {
  EXPECT_EQ(make_plan(problem("slstm", 3, 77, 96, 8), {}), make_plan(problem("slstm", 3, 77, 96, 8), {}));
}

TEST(CellTable, NamesAreUniqueAndFound) {
  for (const CellTraits& cell : cell_table()) {
    EXPECT_EQ(cell_traits(cell.info.name).index, cell.index);
    EXPECT_FALSE(cell.info.description.empty());
  }
  test::expect_error(ErrorCode::invalid_argument, "lstm", [] { cell_traits("nope"); });
}

TEST(Names, ParseWhatTheyPrint) {
  for (const Direction d : {Direction::forward, Direction::reverse, Direction::bidirectional}) {
    EXPECT_EQ(parse_direction(to_string(d)), d);
  }
  for (const Bias b : {Bias::none, Bias::single, Bias::both}) EXPECT_EQ(parse_bias(to_string(b)), b);
  for (const Algorithm a : {Algorithm::automatic, Algorithm::sequential, Algorithm::scan}) {
    EXPECT_EQ(parse_algorithm(to_string(a)), a);
  }
  test::expect_error(ErrorCode::invalid_argument, "algorithm must be one of automatic, sequential, scan, not 'fast'",
                     [] { parse_algorithm("fast"); });
}

}  // namespace
}  // namespace penstock::plan
