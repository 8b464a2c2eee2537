// Plans for rows that end one after the other, and how many steps each is for.

#include "plan/gpu/sorted_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace penstock::plan {
namespace {

using testing::ElementsAre;

GpuDenseProblem layer_of(Index rows, Index hidden, bool backward = false) {
  return {.rows = rows, .steps = 512, .hidden = hidden, .backward = backward, .training = !backward, .ragged = true};
}

TEST(SortedRows, HavePlansThatAreWorthIt) {
  const GpuModel gpu = named_gpu("H200");
  for (const bool backward : {false, true}) {
    const std::vector<Index> counts = rows_worth_a_plan(layer_of(64, 1024, backward), gpu);
    EXPECT_EQ(counts.front(), 64);
    EXPECT_GE(counts.size(), backward ? 2u : 3u);  // backward, teams of warpgroups stay the best plan for longer
    EXPECT_TRUE(std::ranges::is_sorted(counts, std::greater_equal<>()));
  }
  EXPECT_THAT(rows_worth_a_plan(layer_of(64, 64), gpu), ElementsAre(64)) << "blocks that wait for nobody";
  EXPECT_THAT(rows_worth_a_plan(layer_of(1, 1024), gpu), ElementsAre(1));
}

/// Returns the time of the stages, by the costs that chose them.
double time_of(std::span<const SortedPlan> plans, std::span<const SortedStage> stages, double begin) {
  return std::accumulate(stages.begin(), stages.end(), 0.0, [&](double sum, const SortedStage& stage) {
    return sum + begin + static_cast<double>(stage.steps) * plans[stage.plan].step_microseconds;
  });
}

TEST(SortedStages, GoOnWithFewerRows) {
  const std::vector<SortedPlan> plans = {{8, 4}, {4, 2}, {2, 1}};
  std::vector<Index> sizes(100, 8);
  EXPECT_THAT(sorted_stages(plans, sizes, 10), ElementsAre(SortedStage{0, 0, 100}));
  std::fill(sizes.begin() + 30, sizes.end(), 5);
  EXPECT_THAT(sorted_stages(plans, sizes, 10), ElementsAre(SortedStage{0, 0, 100})) << "none has room for 5 alone";
  std::fill(sizes.begin() + 40, sizes.end(), 4);
  EXPECT_THAT(sorted_stages(plans, sizes, 10), ElementsAre(SortedStage{0, 0, 40}, SortedStage{1, 40, 60}));
  std::fill(sizes.begin() + 97, sizes.end(), 1);
  EXPECT_THAT(sorted_stages(plans, sizes, 10), ElementsAre(SortedStage{0, 0, 40}, SortedStage{1, 40, 60}))
      << "three steps are not worth a launch";
  EXPECT_EQ(sorted_stages(plans, sizes, 0).size(), 3u);
  std::fill(sizes.begin() + 40, sizes.end(), 2);
  EXPECT_THAT(sorted_stages(plans, sizes, 10), ElementsAre(SortedStage{0, 0, 40}, SortedStage{2, 40, 60}))
      << "what no step has is passed over";
}

/// Beside all ways to cut the steps at where a plan begins to have room.
TEST(SortedStages, TakeLeast) {
  const std::vector<SortedPlan> plans = {{16, 5}, {12, 4.2}, {8, 3}, {4, 2.6}, {2, 1}};
  std::vector<Index> sizes;
  for (Index t = 0; t < 61; ++t) sizes.push_back(std::max<Index>(1, 16 - t / 4));
  for (const double begin : {0.0, 1.0, 7.0, 30.0, 1000.0}) {
    const std::vector<SortedStage> best = sorted_stages(plans, sizes, begin);
    Index next = 0;
    for (const SortedStage& stage : best) {
      EXPECT_EQ(stage.begin, next);
      EXPECT_LE(sizes[static_cast<std::size_t>(stage.begin)], plans[stage.plan].rows);
      next += stage.steps;
    }
    EXPECT_EQ(next, 61);
    for (unsigned chosen = 0; chosen < 16; ++chosen) {
      std::vector<SortedStage> other = {{0, 0, 61}};
      for (std::size_t p = 1; p < plans.size(); ++p) {
        if ((chosen >> (p - 1) & 1) == 0) continue;
        const auto from =
            std::ranges::find_if(sizes, [&](Index size) { return size <= plans[p].rows; }) - sizes.begin();
        other.back().steps = from - other.back().begin;
        other.push_back({p, from, 61 - from});
      }
      EXPECT_LE(time_of(plans, best, begin), time_of(plans, other, begin) + 1e-9) << begin << " " << chosen;
    }
  }
}

}  // namespace
}  // namespace penstock::plan
