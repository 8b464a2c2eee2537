// Which cycles of the calendar a series follows: what is seen where there is one, and how seldom where there is none.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "data/series/cycle_test.h"

namespace penstock::training {
namespace {

constexpr double week = 7.0, year = 365.25;

/// Series one after the other, a row a day from the same day, all of them to be trained on.
struct DailyRows {
  std::vector<float> values;  // [rows, targets]
  Index targets = 1;
  std::vector<double> days = {};
  std::vector<Segment> segments = {};
  std::function<bool(Index, Index)> is_known = [](Index, Index) { return true; };

  DailyRows(std::vector<float> all, Index series, Index targets_of_each = 1)
      : values(std::move(all)), targets(targets_of_each) {
    const Index rows = static_cast<Index>(values.size()) / series / targets;
    for (Index i = 0; i < series; ++i) {
      segments.push_back({i * rows, (i + 1) * rows, (i + 1) * rows});
      for (Index row = 0; row < rows; ++row) days.push_back(static_cast<double>(row));
    }
  }

  std::vector<bool> follow(const std::vector<double>& cycles) const {
    return cycles_shown({values, targets, days, 1.0, segments, is_known}, cycles);
  }
};

double wave(Index day, double cycle) { return std::sin(2.0 * std::numbers::pi * static_cast<double>(day) / cycle); }

/// Returns an autoregressive process x_t = keep x_{t-1} + e_t.
std::vector<float> noise(Index rows, double keep, Random& random) {
  std::vector<float> x;
  double value = 0.0;
  for (Index i = 0; i < rows; ++i) x.push_back(static_cast<float>(value = keep * value + random.normal()));
  return x;
}

DailyRows with(std::vector<float> x, double amplitude, double cycle) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(amplitude * wave(static_cast<Index>(i), cycle));
  return {std::move(x), 1};
}

TEST(CycleTest, SeldomSeesACycleInNoise) {
  constexpr Index runs = 300;
  // At a level of 0.001, 0.3 of 300 runs are expected to be wrong; more than five are with a probability of 1e-6.
  for (const double keep : {0.0, 0.9, 1.0}) {
    Random random(1);
    Index seen = 0;
    for (Index run = 0; run < runs; ++run) seen += DailyRows(noise(301, keep, random), 1).follow({week})[0] ? 1 : 0;
    EXPECT_LE(seen, 5) << keep;
  }
}

TEST(CycleTest, SeesCyclesThatStandOutOfTheNoise) {
  Random random(2);
  for (const double keep : {0.0, 0.75, 1.0}) {
    const std::vector<float> x = noise(1499, keep, random);
    EXPECT_EQ(with(x, 0.0, week).follow({week, year}), (std::vector<bool>{false, false})) << keep;
    EXPECT_EQ(with(x, 1.0, week).follow({week, year}), (std::vector<bool>{true, false})) << keep;
    if (keep == 1.0) continue;  // which wanders about more than that in a year
    EXPECT_EQ(with(x, 3.0, year).follow({week, year}), (std::vector<bool>{false, true})) << keep;
  }
}

TEST(CycleTest, OvertonesCount) {
  Random random(3);
  std::vector<float> x = noise(1499, 0.5, random);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(wave(static_cast<Index>(i), week / 3.0));
  EXPECT_EQ(DailyRows(x, 1).follow({week}), std::vector<bool>{true});
}

TEST(CycleTest, AnotherCycleIsNone) {
  Random random(4);
  EXPECT_EQ(with(noise(1499, 0.5, random), 5.0, 11.0).follow({week, year}), (std::vector<bool>{false, false}));
}

TEST(CycleTest, WhatRepeatsItselfToTheLastDigitIsSeen) {
  std::vector<float> x;
  for (Index i = 0; i < 101; ++i) x.push_back(static_cast<float>(i % 7 * (i % 7) % 5));
  EXPECT_EQ(DailyRows(x, 1).follow({week}), std::vector<bool>{true});
  EXPECT_EQ(DailyRows(std::vector<float>(101, 1.0f), 1).follow({week}), std::vector<bool>{false}) << "a constant";
  EXPECT_EQ(DailyRows(std::vector<float>(15, 1.0f), 1).follow({week}), std::vector<bool>{false}) << "hardly two weeks";
  EXPECT_TRUE(DailyRows(x, 1).follow({}).empty());
}

TEST(CycleTest, HeldOutAndUnknownValuesDoNotCount) {
  Random random(5);
  std::vector<float> x = noise(600, 0.5, random);
  for (std::size_t i = 300; i < x.size(); ++i) x[i] += static_cast<float>(3.0 * wave(static_cast<Index>(i), week));
  DailyRows rows(x, 1);
  EXPECT_EQ(rows.follow({week}), std::vector<bool>{true});
  rows.segments[0].training_end = 300;
  EXPECT_EQ(rows.follow({week}), std::vector<bool>{false});
  rows.segments[0].training_end = 600;
  rows.is_known = [](Index row, Index) { return row < 300; };
  EXPECT_EQ(rows.follow({week}), std::vector<bool>{false});
}

TEST(CycleTest, OneTargetThatFollowsIsEnough) {
  Random random(6);
  const std::vector<float> still = noise(300, 0.5, random), moving = with(still, 1.0, week).values;
  for (const bool second : {false, true}) {
    std::vector<float> both;
    for (std::size_t i = 0; i < still.size(); ++i) {
      both.push_back(still[i]);
      both.push_back(second ? moving[i] : still[still.size() - 1 - i]);
    }
    EXPECT_EQ(DailyRows(both, 1, 2).follow({week}), std::vector<bool>{second});
  }
}

TEST(CycleTest, SeriesThatMoveTogetherAreNoMoreProofThanOne) {
  constexpr Index series = 40, rows = 120, runs = 50;
  Index seen = 0, seen_weeks = 0;
  for (Index run = 0; run < runs; ++run) {
    Random random(static_cast<std::uint64_t>(run));
    const std::vector<float> common = noise(rows, 1.0, random);
    std::vector<float> shops, weekly;
    for (Index i = 0; i < series; ++i) {
      for (Index row = 0; row < rows; ++row) {
        shops.push_back(common[row] + static_cast<float>(0.3 * random.normal()));
        weekly.push_back(shops.back() + static_cast<float>(2.0 * wave(row, week)));
      }
    }
    seen += DailyRows(shops, series).follow({week})[0] ? 1 : 0;
    seen_weeks += DailyRows(weekly, series).follow({week})[0] ? 1 : 0;
  }
  EXPECT_LE(seen, 3) << "0.05 are expected at a level of 0.001; were the series taken for independent, most would be";
  EXPECT_EQ(seen_weeks, runs);
}

TEST(CycleTest, ManyShortSeriesShowWhatOneDoesNot) {
  constexpr Index series = 100, rows = 60;
  Random random(7);
  std::vector<float> x, first;
  for (Index i = 0; i < series; ++i) {
    for (Index row = 0; row < rows; ++row) {
      x.push_back(static_cast<float>(random.normal() + 0.3 * wave(row, week)));
    }
    if (i == 0) first = x;
  }
  EXPECT_EQ(DailyRows(first, 1).follow({week}), std::vector<bool>{false});
  EXPECT_EQ(DailyRows(x, series).follow({week}), std::vector<bool>{true});
}

TEST(CycleTest, OfVeryLongSeriesASampleIsEnough) {
  Random random(8);
  const std::vector<float> x = noise(250'001, 0.9, random);
  EXPECT_EQ(with(x, 0.0, week).follow({week, year}), (std::vector<bool>{false, false}));
  EXPECT_EQ(with(x, 0.2, week).follow({week, year}), (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace penstock::training
