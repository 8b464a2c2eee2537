// How wide intervals are that follow the errors of late.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "penstock/error.h"
#include "penstock/interval_tracker.h"

namespace penstock {
namespace {

// Quantile 0.9 of a normal distribution.
constexpr double ninth_tenth = 1.2816;

/// A column that is forecast so many rows ahead, with the spread of a random walk of steps of deviation 1.
DataDescription walk_data(Index horizon) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{.name = "x"}};
  data.targets = {{.name = "x"}};
  data.series.horizon = horizon;
  data.series.errors = {.levels = {0.1, 0.5, 0.9},
                        .quantiles = {-ninth_tenth, 0.0, ninth_tenth},
                        .scales = {},
                        .relative = {0},
                        .endings = {}};
  for (Index h = 1; h <= horizon; ++h) data.series.errors.scales.push_back(std::sqrt(static_cast<double>(h)));
  return data;
}

/// A random walk that is forecast by its last value.
class Walk {
 public:
  explicit Walk(Index horizon, std::uint64_t seed = 3) : data_(walk_data(horizon)), tracker_(data_), random_(seed) {}

  /// The share of values that lie within intervals, over rows of steps of such a deviation.
  double covered(Index rows, double deviation, Index skipped = 0) {
    double within = 0.0, count = 0.0;
    for (Index row = 0; row < rows; ++row) {
      const double before = value_;
      value_ += deviation * random_.normal();
      const ErrorDistribution& spread = tracker_.distribution();
      const bool holds = value_ >= spread.quantile(0.1, 0, data_.targets[0], before) &&
                         value_ <= spread.quantile(0.9, 0, data_.targets[0], before);
      if (row >= skipped) within += holds ? 1.0 : 0.0, ++count;
      add();
    }
    return within / count;
  }

  void add() {
    const auto value = static_cast<float>(value_);
    const std::vector<float> forecasts(static_cast<std::size_t>(data_.series.horizon), value);
    tracker_.add({&value, 1}, forecasts);
  }

  IntervalTracker& tracker() { return tracker_; }
  DataDescription& data() { return data_; }

 private:
  DataDescription data_;
  IntervalTracker tracker_;
  Random random_;
  double value_ = 0.0;
};

/// Four deviations of the share of 0.8 that so many values cover.
double four_deviations(double values) { return 4.0 * std::sqrt(0.8 * 0.2 / values); }

TEST(IntervalTracker, IntervalsHoldWhatTheySayWhateverTheErrorsDo) {
  for (const Index horizon : {1, 7}) {
    Walk walk(horizon);
    EXPECT_NEAR(walk.covered(500, 1.0), 0.8, four_deviations(500)) << horizon;
    EXPECT_NEAR(walk.covered(500, 4.0, 30), 0.8, four_deviations(470)) << horizon << " a wilder end";
    EXPECT_NEAR(walk.covered(500, 0.2, 100), 0.8, four_deviations(400)) << horizon << " a calmer one";
  }
}

TEST(IntervalTracker, WidthsAreInUnitsOfWhatErrorsUsedToBe) {
  Walk walk(5);
  walk.covered(100, 1.0);
  double mean = 0.0;
  constexpr int rows = 400;
  for (int row = 0; row < rows; ++row) {
    walk.covered(1, 3.0);
    mean += walk.tracker().widths()[0] / rows;
  }
  // The first fifty rows are on the way there.
  EXPECT_NEAR(mean, 3.0, 0.15 * 3.0);
  const ErrorDistribution& spread = walk.tracker().distribution();
  for (std::size_t h = 0; h < 5; ++h) {
    EXPECT_DOUBLE_EQ(spread.scales[h], walk.data().series.errors.scales[h] * walk.tracker().widths()[0]);
  }
}

TEST(IntervalTracker, GoesOnFromItsStateToTheBit) {
  Walk one(70, 8), other(70, 8);
  one.covered(40, 2.0);
  other.covered(40, 2.0);
  IntervalTracker copy(other.data());
  copy.restore(other.tracker().state());
  EXPECT_EQ(copy.state(), other.tracker().state());
  for (int row = 0; row < 100; ++row) {
    const auto value = static_cast<float>(std::sin(row) * 9.0);
    const std::vector<float> forecasts(70, value);
    one.tracker().add({&value, 1}, forecasts);
    copy.add({&value, 1}, forecasts);
    ASSERT_EQ(copy.distribution().scales, one.tracker().distribution().scales) << row;
  }
  copy.reset();
  EXPECT_EQ(copy.state(), IntervalTracker(other.data()).state());
  copy.restore(one.tracker().state());
  copy.restore({});
  EXPECT_EQ(copy.state(), IntervalTracker(other.data()).state());
}

TEST(IntervalTracker, RefusesAStateThatIsNone) {
  Walk walk(3);
  walk.covered(10, 1.0);
  const std::vector<float> state = walk.tracker().state();
  const auto refuses = [&](std::vector<float> wrong, const char* why) {
    EXPECT_THAT([&] { walk.tracker().restore(wrong); }, testing::ThrowsMessage<Error>(testing::HasSubstr(why)));
  };
  refuses({state.begin(), state.end() - 1}, "the state of intervals must not hold 16 values");
  std::vector<float> wrong = state;
  wrong.back() = std::nanf("");
  refuses(wrong, "must be finite");
  wrong = state;
  wrong[0] = -1.0f;
  refuses(wrong, "widths of -1 and");
  IntervalTracker none{DataDescription()};
  EXPECT_TRUE(none.state().empty());
  EXPECT_NO_THROW(none.restore({}));
  EXPECT_THAT([&] { none.restore(state); }, testing::ThrowsMessage<Error>(testing::HasSubstr("must not hold 17")));
}

TEST(IntervalTracker, WhatTrainingKnewOfItsEndTakesThePlaceOfWhatItHasSeen) {
  Walk walk(4);
  walk.data().series.errors.endings = {{.group = "", .values = {1.0f, 2.0f, 4.0f}, .widths = {9.0f, 0.5f}}};
  IntervalTracker tracker(walk.data());
  const auto add = [&](float value) {
    const std::vector<float> forecasts(4, value);
    tracker.add({&value, 1}, forecasts);
  };
  add(2.0f);
  add(4.0f);
  EXPECT_NE(tracker.widths()[0], static_cast<double>(static_cast<float>(3.0 * std::exp(0.5))));
  for (const float value : {0.5f, 1.0f, 2.0f, 4.00001f}) add(value);
  EXPECT_EQ(tracker.widths()[0], static_cast<double>(static_cast<float>(3.0 * std::exp(0.5))));
  add(4.0f);
  EXPECT_NE(tracker.widths()[0], static_cast<double>(static_cast<float>(3.0 * std::exp(0.5))));
  EXPECT_TRUE(tracker.distribution().endings.empty());
}

TEST(IntervalTracker, AGroupKnowsItsOwnEndAlone) {
  DataDescription data = walk_data(1);
  data.series.group_column = "who";
  data.series.groups = {{.name = "a", .inputs = {{}}, .targets = {{}}}, {.name = "b", .inputs = {{}}, .targets = {{}}}};
  data.series.errors.endings = {{.group = "a", .values = {1.0f}, .widths = {1.0f, 0.0f}},
                                {.group = "b", .values = {2.0f}, .widths = {1.0f, 0.0f}}};
  const DataDescription own = data.of_group(data.series.groups[1]);
  ASSERT_EQ(own.series.errors.endings.size(), 1u);
  EXPECT_EQ(own.series.errors.endings[0].group, "b");
}

TEST(IntervalTracker, OnlyErrorsThatAreKnownCount) {
  DataDescription data = walk_data(1);
  data.targets.push_back({.name = "unread"});
  data.series.errors.quantiles = {-1.0, -1.0, 0.0, 0.0, 1.0, 1.0};
  data.series.errors.scales = {1.0, 1.0};
  data.series.errors.relative = {0, 0};
  IntervalTracker tracker(data);
  const float features[] = {9.0f}, forecasts[] = {0.0f, 0.0f};
  const double known[] = {9.0, 9.0}, put_in[] = {std::nan(""), 9.0};
  for (int row = 0; row < 20; ++row) tracker.add(features, forecasts, put_in);
  EXPECT_EQ(tracker.widths(), (std::vector<double>{1.0, 1.0})) << "all were missing";
  tracker.add(features, forecasts, known);
  EXPECT_GT(tracker.widths()[0], 1.0);
  EXPECT_EQ(tracker.widths()[1], 1.0) << "the model does not see it";
}

TEST(IntervalTracker, RelativeErrorsAreRatios) {
  DataDescription data = walk_data(1);
  data.series.errors.relative = {1};
  data.series.errors.scales = {0.1};
  IntervalTracker tracker(data);
  // Off by half a deviation, at any size: the square falls towards a quarter, and no interval is missed.
  float value = 1.0f;
  for (int row = 0; row < 60; ++row) {
    tracker.add({&value, 1}, {&value, 1});
    value *= static_cast<float>(std::exp(0.05));
  }
  EXPECT_NEAR(static_cast<double>(tracker.recent()[0]), 0.25, 0.01);
  const double before = tracker.widths()[0];
  const float none = -1.0f;
  tracker.add({&none, 1}, {&none, 1});
  EXPECT_EQ(tracker.widths()[0], before) << "there is no ratio";
}

TEST(IntervalTracker, AZeroIsNoSmallValue) {
  DataDescription data = walk_data(1);
  data.inputs[0].mean = data.targets[0].mean = 1.1;
  data.inputs[0].scale = data.targets[0].scale = 1.7;
  data.series.errors.relative = {1};
  data.series.errors.scales = {0.1};
  IntervalTracker tracker(data);
  const auto zero = static_cast<float>(data.inputs[0].normal(0.0)),
             one = static_cast<float>(data.inputs[0].normal(1.0));
  ASSERT_NE(data.inputs[0].raw(static_cast<double>(zero)), 0.0) << "what floats make of it";
  const double raw_zero = 0.0, raw_one = 1.0;
  tracker.add({&one, 1}, {&one, 1}, {&raw_one, 1});
  const double before = tracker.widths()[0];
  tracker.add({&zero, 1}, {&one, 1}, {&raw_zero, 1});
  EXPECT_EQ(tracker.widths()[0], before);
}

}  // namespace
}  // namespace penstock
