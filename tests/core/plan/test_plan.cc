// Choices and refusals of the planner, and their reasons.

#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "plan/tuning.h"
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

/// With vectors of 64 bytes and 1 MiB of second-level cache a core, as choices were measured.
CpuModel wide_machine() {
  CpuModel cpu;
  cpu.vector_bytes = 64;
  return cpu;
}

/// Groups of rows and threads of each group.
using Parts = std::pair<int, int>;
Parts parts_of(const char* cell, Index rows, Index hidden, int threads) {
  const Plan plan = make_plan(problem(cell, rows, 100, hidden, threads), wide_machine());
  return {plan.row_parts, plan.channel_parts};
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

TEST(Plan, ShortCallsRunOnOneThread) {
  for (const char* cell : {"mingru", "minlstm-log", "lstm", "gru", "elman"}) {
    EXPECT_EQ(make_plan(problem(cell, 1, 16, 16, 4), {}).threads(), 1) << cell;
    EXPECT_GT(make_plan(problem(cell, 64, 128, 64, 4), {}).threads(), 1) << cell;
  }
  EXPECT_THAT(make_plan(problem("lstm", 8, 1, 16, 4), {}).why, HasSubstr("too short to share"));
}

/// Plans are remembered, and those of cells that differ in this alone must not be mixed up.
TEST(Plan, CellsWithMeansDoNotShareTheUnitsOfARow) {
  CellTraits averaging = cell_traits("lstm");
  averaging.averages = true;
  Problem asked = problem("lstm", 1, 100, 512, 2);
  EXPECT_EQ(make_plan(asked, {}).channel_parts, 2);
  asked.cell = &averaging;
  EXPECT_EQ(make_plan(asked, {}).channel_parts, 1);
}

/// Two threads, each with half of the rows or half of the units: what took less time (docs/results/planning.md), where
/// the difference was more than a tenth.
TEST(DensePlan, IsTheQuickerOneOfThoseThatWereMeasured) {
  struct Measured {
    const char* cell;
    Index rows, hidden;
    bool shares_units;
  };
  for (const auto& [cell, rows, hidden, shares_units] : {Measured{"lstm", 2, 64, false},
                                                         {"lstm", 5, 100, false},
                                                         {"lstm", 2, 128, true},
                                                         {"lstm", 16, 256, true},
                                                         {"lstm", 22, 512, true},
                                                         {"gru", 4, 96, false},
                                                         {"gru", 4, 128, false},
                                                         {"gru", 4, 384, true},
                                                         {"elman", 2, 128, false},
                                                         {"elman", 2, 192, false},
                                                         {"elman", 8, 512, false}}) {
    EXPECT_EQ(parts_of(cell, rows, hidden, 2), shares_units ? Parts(1, 2) : Parts(2, 1)) << cell << rows << hidden;
  }
}

/// A Xeon, whose cores read slowly from beyond their second-level cache: matrices that half a cache nearly holds are
/// shared by units, unless so many rows are multiplied that reading costs little beside it.
TEST(DensePlan, SharesMatricesThatAreSlowToRead) {
  CpuModel xeon = wide_machine();
  xeon.l2_bytes = 2 << 20;
  xeon.costs.multiply_adds = 105'000, xeon.costs.gates = 860, xeon.costs.far_weight = 14;
  const auto parts = [&](const char* cell, Index rows, Index hidden) {
    const Plan plan = make_plan(problem(cell, rows, 100, hidden, 2), xeon);
    return Parts(plan.row_parts, plan.channel_parts);
  };
  for (const auto& [rows, hidden] : {std::pair{24, 640}, {32, 512}, {32, 768}, {64, 512}, {64, 768}, {64, 1024}}) {
    EXPECT_EQ(parts("lstm", rows, hidden), Parts(1, 2)) << rows << " x " << hidden;
  }
  EXPECT_EQ(parts("gru", 64, 512), Parts(1, 2));
  EXPECT_EQ(parts("lstm", 128, 512), Parts(2, 1));
  EXPECT_EQ(parts("lstm", 64, 256), Parts(2, 1)) << "the cache holds it";
}

/// A third of the time is too short to share.
TEST(DensePlan, Int8TakesLessTimeThanFloats) {
  CpuModel machine = wide_machine();
  machine.costs.int8_products = 3;
  Problem floats = problem("lstm", 4, 3, 128, 2), int8 = floats;
  int8.int8 = true;
  const Plan of_floats = make_plan(floats, machine), of_int8 = make_plan(int8, machine);
  EXPECT_EQ(of_floats.threads(), 2);
  EXPECT_EQ(of_int8.threads(), 1) << of_int8.explain();
  int8.steps = 200;
  EXPECT_EQ(make_plan(int8, machine).threads(), 2);
  EXPECT_NE(work_of(floats), work_of(int8)) << "each has measured plans of its own";
}

TEST(ScanPlan, Int8TakesLessTimeThanFloats) {
  CpuModel machine = wide_machine();
  machine.costs.int8_products = 3;
  Problem floats = problem("mingru", 1, 6, 256, 2), int8 = floats;
  floats.input = int8.input = 256;
  int8.int8 = true;
  EXPECT_EQ(make_plan(floats, machine).threads(), 2);
  EXPECT_EQ(make_plan(int8, machine).threads(), 1);
}

TEST(DensePlan, ManyRowsReadAMatrixOftenEnough) {
  for (const Index rows : {8, 64}) EXPECT_EQ(parts_of("lstm", rows, 128, 2), Parts(2, 1)) << rows;
  EXPECT_EQ(parts_of("lstm", 24, 512, 2), Parts(2, 1));
  EXPECT_EQ(parts_of("lstm", 8, 512, 8), Parts(2, 4));
}

TEST(DensePlan, ThreadsWithHeadsOfTheirOwnExchangeNothing) {
  Problem heads = problem("lstm", 4, 100, 256, 2);
  heads.heads = 4;
  EXPECT_EQ(make_plan(heads, wide_machine()).channel_parts, 2);
  CpuModel far_apart = wide_machine();
  far_apart.costs.exchanged = 1e6;
  EXPECT_EQ(make_plan(heads, far_apart).channel_parts, 2);
  heads.heads = 1, heads.hidden = 128;  // as many weights
  EXPECT_EQ(make_plan(heads, far_apart).channel_parts, 1);
}

TEST(DensePlan, IsTheOneWithTheLeastEstimate) {
  for (const Index rows : {1, 2, 3, 5, 9, 16}) {
    for (const Index hidden : {16, 64, 100, 128, 512}) {
      const Problem p = problem("lstm", rows, 100, hidden, 4);
      const double least = make_plan(p, wide_machine()).microseconds;
      for (const Candidate& candidate : candidates(p, wide_machine(), 8)) {
        constexpr double of_groups = 1 + 1e-5;
        EXPECT_LE(least, candidate.microseconds * of_groups) << rows << " x " << hidden << ": " << candidate.text;
      }
    }
  }
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
  test::expect_error(ErrorCode::invalid_argument, "algorithm must be one of auto, sequential, scan, not \"fast\"",
                     [] { parse_algorithm("fast"); });
}

}  // namespace
}  // namespace penstock::plan
