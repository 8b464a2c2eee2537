#include <gtest/gtest.h>

#include "penstock/train/train.h"

namespace penstock::training {
namespace {

TrainOptions options(double learning_rate, double warmup, double final_rate) {
  TrainOptions result;
  result.learning_rate = learning_rate;
  result.warmup = warmup;
  result.final_rate = final_rate;
  return result;
}

TEST(Schedule, RisesThenFallsAlongACosine) {
  const TrainOptions usual = options(2.0, 0.2, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(usual, 0.0), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(usual, 0.05), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(usual, 0.2), 2.0);
  EXPECT_NEAR(learning_rate_at(usual, 0.6), 2.0 * (0.1 + 0.9 * 0.5), 1e-12);  // half way down
  EXPECT_NEAR(learning_rate_at(usual, 1.0), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate_at(usual, 7.0), 0.2, 1e-12);
}

TEST(Schedule, OneCycleIsPyTorchs) {
  TrainOptions usual = options(0.5, 0.3, 0.1);
  usual.schedule = Schedule::onecycle;
  usual.max_steps = 10;
  // OneCycleLR(optimizer, 0.5, total_steps=10, pct_start=0.3, cycle_momentum=False)
  const double rates[] = {0.020000000000000018,
                          0.26,
                          0.5,
                          0.47524231600673683,
                          0.40587282697488153,
                          0.30563101096814466,
                          0.19437098903185537,
                          0.09412917302511849,
                          0.024759683993263143,
                          2e-06};
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(learning_rate_at(usual, (i + 1) / 10.0), rates[i], 1e-12) << i;
}

TEST(Schedule, EdgesOfTheOptions) {
  EXPECT_DOUBLE_EQ(learning_rate_at(options(1.0, 0.0, 0.0), 0.0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options(1.0, 1.0, 0.0), 1.0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options(1.0, 0.0, 1.0), 0.7), 1.0);
}

}  // namespace
}  // namespace penstock::training
