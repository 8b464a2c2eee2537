// End of a series model's training: how much of its layers counts, how far its forecasts are off, and several models as
// one.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

#include "base/random.h"
#include "data/series/series_rows.h"
#include "forecast/linear_fits.h"
#include "nn/model/model_impl.h"
#include "penstock/error.h"
#include "penstock/forecast/score.h"
#include "penstock/interval_tracker.h"
#include "penstock/stop.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

class SeriesFinish : public testing::Test {
 protected:
  /// A series in a file, and its dataset with a linear forecast; a second column may stand there to be read.
  std::unique_ptr<Dataset> open(const std::vector<double>& values, Index horizon, bool second_column = false) {
    std::ofstream file(path_);
    file << (second_column ? "x,y\n" : "x\n");
    Random random(3);
    for (const double value : values) {
      file << (second_column ? fmt::format("{},{}\n", value, random.normal()) : fmt::format("{}\n", value));
    }
    file.close();
    SeriesOptions options{.horizon = horizon, .from_last = true, .autoregression = true};
    if (second_column) options.inputs = {"x", "y"};
    if (second_column) options.targets = {"x"};
    return open_series(path_, options);
  }

  static Model model(const Dataset& data, std::uint64_t seed) {
    ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
    use_linear_forecast(spec, data);
    Model result(spec, data.description(), seed);
    fit_autoregression(result, data);
    return result;
  }

  static std::span<float> parameter(Model& model, const std::string& name) {
    for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
      if (entry.name == name) return model.impl().parameters->value(entry);
    }
    return {};
  }

  static void set_bias(Model& model, float bias) {
    for (float& value : parameter(model, "head.bias")) value = bias;
    model.impl().parameters->changed();
  }

  static std::vector<double> walk(Index rows, double drift_after = 0.0) {
    Random random(5);
    std::vector<double> values = {0.0};
    for (Index i = 1; i < rows; ++i) {
      values.push_back(values.back() + random.normal() + (i >= rows * 4 / 5 ? drift_after : 0.0));
    }
    return values;
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.path("series.csv");
};

TEST_F(SeriesFinish, AnInterruptLeavesTheModelAsItWas) {
  const auto data = open(walk(1200), 1);
  Model trained = model(*data, 1);
  set_bias(trained, 1.0f);  // of no use: all of it would be taken away
  const auto values = trained.impl().parameters->values();
  const std::vector<float> before(values.begin(), values.end());
  const auto is_as_before = [&] {
    return std::ranges::equal(trained.impl().parameters->values(), before) &&
           trained.data().series.errors.scales.empty();
  };
  std::atomic<bool> asked = true;
  {
    const Stoppable stoppable(&asked);
    test::expect_error(ErrorCode::interrupted, "interrupted", [&] { finish_training(trained, *data); });
  }
  EXPECT_TRUE(is_as_before());
  // Interrupt later and later, until nothing is left to interrupt.
  bool whole = false;
  for (int wait = 1; !whole; wait *= 2) {
    asked = false;
    const std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * wait));
      asked = true;
    });
    try {
      const Stoppable stoppable(&asked);
      whole = finish_training(trained, *data).share < 1.0;
      EXPECT_TRUE(whole);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::interrupted);
      EXPECT_TRUE(is_as_before()) << "asked after " << wait;
    }
  }
  EXPECT_FALSE(is_as_before());
}

TEST_F(SeriesFinish, ACorrectionThatHoldsOnHeldOutRowsStays) {
  // From the first held-out row on the walk drifts by 2 a row, of which nothing before knows.
  const auto data = open(walk(1200, 2.0), 1);
  Model trained = model(*data, 1);
  const Column& column = data->description().targets[0];
  set_bias(trained, static_cast<float>(2.0 / column.scale));
  const double with = evaluate(trained, *data, {}).loss;
  EXPECT_GT(shrink_correction(trained, *data), 0.6);
  EXPECT_LT(shrink_correction(trained, *data), 1.0 + 1e-9);
  EXPECT_NEAR(evaluate(trained, *data, {}).loss, with, 0.2 * with);
}

TEST_F(SeriesFinish, ACorrectionThatDoesNotPayGoes) {
  const auto data = open(walk(1200), 1);
  Model trained = model(*data, 1);
  const double linear = evaluate(trained, *data, {}).loss;
  set_bias(trained, 0.5f);
  EXPECT_GT(evaluate(trained, *data, {}).loss, linear);
  EXPECT_EQ(shrink_correction(trained, *data), 0.0);
  EXPECT_EQ(evaluate(trained, *data, {}).loss, linear) << "the same bits as before";
}

TEST_F(SeriesFinish, FewerThanFourHorizonsOfRowsVouchForNothing) {
  const auto data = open(walk(60, 5.0), 6, true);
  Model trained = model(*data, 1);
  set_bias(trained, 0.5f);
  EXPECT_EQ(shrink_correction(trained, *data), 0.0);
}

TEST_F(SeriesFinish, FewHeldOutRowsVouchForLayersOnlyIfTheseReadMoreThanTheLinearForecast) {
  for (const bool second_column : {false, true}) {
    const auto data = open(walk(500, 2.0), 1, second_column);
    Model trained = model(*data, 1);
    set_bias(trained, static_cast<float>(2.0 / data->description().targets[0].scale));
    const double share = shrink_correction(trained, *data);
    EXPECT_EQ(share > 0.6, second_column) << share;
    EXPECT_EQ(share == 0.0, !second_column) << share;
    EXPECT_EQ(linear_stands_alone(*data), !second_column);
  }
}

TEST_F(SeriesFinish, CellsWhoseGatesDoNotSeeTheStateAreGivenDepth) {
  const auto data = open(walk(500, 2.0), 1, false);
  for (const CellInfo& cell : cells()) {
    const ModelSpec spec = suggest_spec(*data, cell.name);
    EXPECT_EQ(spec.cell, cell.name);
    EXPECT_EQ(spec.blocks, cell.scan ? 4 : 2) << cell.name;
    EXPECT_EQ(spec.width, cell.scan ? 48 : 64) << cell.name;
  }
  EXPECT_EQ(suggest_spec(*data).cell, "mingru");
  EXPECT_EQ(suggest_spec(*data).blocks, 4);
  test::expect_error(ErrorCode::invalid_argument, "mingru", [&] { suggest_spec(*data, "maxgru"); });
}

TEST_F(SeriesFinish, DatesAreNothingThatFewHeldOutRowsVouchFor) {
  std::ofstream(path_) << [] {
    std::string text = "day,x\n";
    Random random(3);
    for (int day = 0; day < 200; ++day) {
      text += fmt::format("2024-{:02}-{:02},{}\n", 1 + day / 28, 1 + day % 28, random.normal());
    }
    return text;
  }();
  for (const Irregular irregular : {Irregular::ignore, Irregular::elapsed}) {
    const SeriesOptions options{.from_last = true,
                                .autoregression = true,
                                .calendar = {.read = true, .cycles = {Cycle::week}},
                                .irregular = irregular};
    const auto data = open_series(path_, options);
    const auto& inputs = data->description().inputs;
    EXPECT_TRUE(std::ranges::any_of(inputs, [](const Column& input) { return input.feature == Feature::week_sine; }));
    // How long it has been since the row before is nothing that comes round again.
    EXPECT_EQ(linear_stands_alone(*data), irregular == Irregular::ignore);
  }
}

TEST_F(SeriesFinish, TheSpreadOfARandomWalkGrowsWithTheRootOfTheDistance) {
  constexpr Index horizon = 9;
  const auto data = open(walk(4000), horizon);
  Model trained = model(*data, 1);
  fit_error_distribution(trained, *data);
  const ErrorDistribution& spread = trained.data().series.errors;
  const double unit = data->description().targets[0].scale;
  for (Index h = 0; h < horizon; ++h) {
    // A step has variance 1. Of some 800 held-out steps and 1,000 past ones there are 1,800 / (h + 1) independent sums;
    // the variance of a mean square of n is 2 / n, and four deviations of the root are allowed for, and what the
    // weights of the linear forecast cost.
    const double expected = std::sqrt(static_cast<double>(h + 1));
    const double allowed = 4.0 * std::sqrt(static_cast<double>(h + 1) / (2.0 * 1800.0)) + 0.03;
    EXPECT_NEAR(unit * spread.scales[h] / expected, 1.0, allowed) << h;
  }
  // The ninth tenth of a normal distribution is at 1.2816. Its empirical counterpart deviates by sqrt(0.1 * 0.9 / n)
  // over the density there, 0.1755, of n = 1,800 / 5 sums of middling length; four of these.
  EXPECT_EQ(spread.relative[0], 0) << "a walk passes zero";
  const Column& column = data->description().targets[0];
  const auto of = [&](double level) {
    return (spread.quantile(level, 0, column, 0.0) - column.raw(0.0)) / (unit * spread.scales[0]);
  };
  const double deviation = std::sqrt(0.09 / (1800.0 / 5.0)) / 0.1755;
  EXPECT_NEAR(of(0.9), 1.2816, 4.0 * deviation);
  EXPECT_NEAR(of(0.1), -1.2816, 4.0 * deviation);
  for (double level = 0.01; level < 0.98; level += 0.01) {
    EXPECT_LE(of(level), of(level + 0.01)) << level;
  }
  EXPECT_THAT(score_held_out(trained, *data)[0].quantiles->coverage,
              testing::DoubleNear(0.8, 4.0 * 0.4 / std::sqrt(800.0 / 5.0)));
}

TEST_F(SeriesFinish, ErrorsThatGrowWithTheValueAreRelative) {
  std::vector<double> values = walk(1000);
  for (double& value : values) value = std::exp(3.0 + 0.05 * value);
  const auto data = open(values, 2);
  Model trained = model(*data, 1);
  fit_error_distribution(trained, *data);
  const ErrorDistribution& spread = trained.data().series.errors;
  EXPECT_EQ(spread.relative[0], 1);
  // Steps of the logarithm have a deviation of 0.05. Of 200 held-out and half of 600 past ones it is off by one part in
  // sqrt(2 * 500); four of these, and what the weights of the linear forecast cost.
  EXPECT_NEAR(spread.scales[0] / 0.05, 1.0, 4.0 / std::sqrt(1000.0) + 0.03);
  const Column& column = data->description().targets[0];
  const double forecast = column.normal(40.0);
  EXPECT_NEAR(spread.quantile(0.9, 0, column, forecast) / 40.0 * spread.quantile(0.1, 0, column, forecast) / 40.0, 1.0,
              0.05);
}

/// How many values that follow what a model was trained on lie in its intervals of 80 %, one row ahead.
struct Covered {
  double within = 0.0, count = 0.0;
};

TEST_F(SeriesFinish, IntervalsCoverAnEndThatIsWilderOrCalmerThanTheBeginning) {
  constexpr Index seen = 160, rows = 240, turn = 150;
  for (const double later : {0.3, 1.0, 3.0}) {
    Covered followed, fixed;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      Random random(seed);
      std::vector<double> values = {100.0};
      for (Index row = 1; row < rows; ++row) {
        values.push_back(values.back() + (row < turn ? 1.0 : later) * random.normal());
      }
      const auto data = open({values.begin(), values.begin() + seen}, 4);
      Model trained = model(*data, seed);
      fit_error_distribution(trained, *data);
      refit_autoregression(trained, *data);
      const DataDescription& description = trained.data();
      const Column& column = description.targets[0];
      std::vector<float> features, forecasts(static_cast<std::size_t>(4 * rows));
      for (const double value : values) features.push_back(static_cast<float>(description.inputs[0].normal(value)));
      ModelState state = trained.state(1);
      trained.forward(1, rows, std::span<const float>(features), forecasts, state);
      IntervalTracker tracker(description);
      for (Index row = 0; row + 1 < rows; ++row) {
        const auto ahead = std::span<const float>(forecasts).subspan(4 * row, 4);
        tracker.add({&features[static_cast<std::size_t>(row)], 1}, ahead);
        if (row + 1 < seen) continue;
        const auto count = [&](const ErrorDistribution& spread, Covered& covered) {
          const auto middle = static_cast<double>(ahead[0]), value = values[static_cast<std::size_t>(row + 1)];
          const bool within =
              value >= spread.quantile(0.1, 0, column, middle) && value <= spread.quantile(0.9, 0, column, middle);
          covered.within += within ? 1.0 : 0.0;
          ++covered.count;
        };
        count(tracker.distribution(), followed);
        count(description.series.errors, fixed);
      }
    }
    // Four deviations of the binomial.
    const double deviations = 4.0 * std::sqrt(0.8 * 0.2 / followed.count);
    EXPECT_NEAR(followed.within / followed.count, 0.8, deviations) << later;
    if (later != 1.0) {
      EXPECT_GT(std::abs(fixed.within / fixed.count - 0.8), deviations) << later;
    }
  }
}

TEST_F(SeriesFinish, AModelKnowsWhereItsRowsEndAndHowWideErrorsWereThere) {
  std::vector<double> values = walk(400);
  for (std::size_t i = 360; i < values.size(); ++i) values[i] += 4.0 * (values[i] - values[359]);  // a wilder end
  const auto data = open(values, 3);
  Model trained = model(*data, 1);
  fit_error_distribution(trained, *data);
  ASSERT_EQ(trained.data().series.errors.endings.size(), 1u);
  const ErrorDistribution::Ending& ending = trained.data().series.errors.endings[0];
  EXPECT_EQ(ending.values.size(), 8u);
  // Squares at the end are 25 times those of the beginning. Of 80 held-out ones half are of it, of 190 past ones, which
  // count half, none: the mean of all is 6.4 times the beginning's, and a quarter of the end's.
  EXPECT_NEAR(static_cast<double>(ending.widths[0]), 25.0 / 6.4, 2.0 * 25.0 / 6.4 * std::sqrt(2.0 * 0.1 / 1.9));
  IntervalTracker tracker(trained.data());
  const DataDescription& description = trained.data();
  for (const double value : values) {
    const auto feature = static_cast<float>(description.inputs[0].normal(value));
    const auto forecast = static_cast<float>(description.targets[0].normal(value));
    const float forecasts[] = {forecast, forecast, forecast};
    tracker.add({&feature, 1}, forecasts);
  }
  EXPECT_EQ(tracker.recent(), ending.widths) << "whatever it has seen";
}

TEST_F(SeriesFinish, ValuesThatWerePutInAreNoErrors) {
  std::vector<double> values = walk(300);
  const auto lacks = [](std::size_t row) { return row % 3 == 1; };
  std::string text = "t,x\n";
  for (std::size_t row = 0; row < values.size(); ++row) {
    text += lacks(row) ? fmt::format("{},\n", row) : fmt::format("{},{}\n", row, values[row]);
  }
  for (const Missing missing : {Missing::carry, Missing::interpolate, Missing::mask}) {
    SeriesOptions options{.horizon = 2, .from_last = true, .autoregression = true};
    options.inputs = {"x"};
    options.targets = {"x"};
    options.missing = missing;
    const auto data = open_series(folder_.write("gaps.csv", text), options);
    const training::SeriesRows& series = *data->series_rows();
    for (std::size_t row = 0; row < values.size(); ++row) {
      EXPECT_EQ(series.is_known(static_cast<Index>(row), 0), !lacks(row));
    }
    Model trained = model(*data, 1);
    const training::RowErrors held_out = training::held_out_errors(trained, series, {});
    for (const training::RowErrors* all : {&held_out, &training::linear_fits(*data)->past_errors}) {
      ASSERT_FALSE(all->rows.empty());
      for (std::size_t i = 0; i < all->errors.size(); ++i) {
        const auto row = static_cast<std::size_t>(all->rows[i / 2]) + 1 + i % 2;
        EXPECT_FALSE(row < values.size() && lacks(row) && std::isfinite(all->errors[i])) << row;
      }
    }
    Example example;
    data->next(1, 200, example);
    const std::size_t inside = 2 * static_cast<std::size_t>(example.steps) - 4;  // not at the end of the training part
    const bool asks =
        std::count(example.weights.begin(), example.weights.begin() + static_cast<std::ptrdiff_t>(inside), 0.0f) == 0;
    EXPECT_EQ(asks, missing != Missing::mask) << "what is put in is learnt unless it is masked";
  }
}

TEST_F(SeriesFinish, ZerosHaveNoRatios) {
  // Floats make something else of a zero: with some means what looks like a very small value above it.
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Random random(seed);
    constexpr double others[] = {1.0, 2.0, 3.0, 5.0};
    std::vector<double> values;
    for (int i = 0; i < 250; ++i) values.push_back(random.uniform() < 0.6 ? 0.0 : others[random.below(4)]);
    const auto data = open(values, 3);
    Model trained = model(*data, 1);
    fit_error_distribution(trained, *data);
    const DataDescription& description = trained.data();
    EXPECT_EQ(description.series.errors.relative[0], 0) << seed;
    EXPECT_LT(description.series.errors.quantile(0.9, 0, description.targets[0], 0.0), 10.0) << seed;
  }
}

TEST_F(SeriesFinish, AValueThatLeavesOthersNoDigitsIsNamed) {
  std::vector<double> values = walk(200);
  const auto said = [&](const Dataset& data) {
    for (const Message& each : data.reading()) {
      const std::string finding = each.text();
      if (finding.find("distorts") != std::string::npos) return finding;
    }
    return std::string();
  };
  EXPECT_EQ(said(*open(values, 1)), "");
  for (const double level : {1e9, 1e12}) {
    std::vector<double> high = values;
    for (double& value : high) value += level;
    EXPECT_EQ(said(*open(high, 1)), "") << level;
  }
  for (const double outlier : {1e12, 5e41}) {
    values[50] = outlier;
    EXPECT_EQ(
        said(*open(values, 1)),
        fmt::format("column \"x\": {} in line 52 of {} is so far from the other values that rounding distorts 197 of "
                    "199 changes from row to row: leave it out, or learn logarithms",
                    outlier, path_));
  }
}

TEST_F(SeriesFinish, HeldOutValuesAreThoseOfTheFile) {
  std::vector<double> values = walk(200);
  for (double& value : values) value += 1e9;
  const auto data = open(values, 2);
  const training::SeriesRows& rows = *data->series_rows();
  const Model trained = model(*data, 1);
  Index seen = 0;
  score_held_out(trained, *data, {},
                 [&](const std::string&, const DataDescription&, std::span<const double> row, std::span<const double>,
                     std::optional<double>, Index lacking) {
                   EXPECT_EQ(row[0], values[static_cast<std::size_t>(seen)]);
                   EXPECT_EQ(rows.value(seen, 0), row[0]);
                   EXPECT_EQ(lacking, 0);
                   ++seen;
                 });
  EXPECT_EQ(seen, 200);
}

TEST_F(SeriesFinish, WidthsFollowTheValuesThatWereThere) {
  const auto data = open(walk(200), 2);
  Model trained = model(*data, 1);
  fit_error_distribution(trained, *data);
  const DataDescription& description = trained.data();
  IntervalTracker tracker(description), without(description);
  Random random(3);
  const double lacking[] = {std::nan("")};
  for (int row = 0; row < 40; ++row) {
    const float value = static_cast<float>(random.normal()), forecasts[] = {value, value};
    const double there[] = {description.inputs[0].raw(static_cast<double>(value))};
    tracker.add({&value, 1}, forecasts, there);
    const std::vector<float> before = tracker.recent();
    tracker.add({&value, 1}, forecasts, lacking);
    EXPECT_EQ(tracker.recent(), before) << "a row that was put in and is forecast without an error";
    without.add({&value, 1}, forecasts);
    without.add({&value, 1}, forecasts);
  }
  EXPECT_LT(without.widths()[0], tracker.widths()[0]);
  test::expect_error(ErrorCode::invalid_argument, "values must hold 1 of the targets, not 2", [&] {
    const float value = 0.0f, forecasts[] = {value, value};
    const double two[] = {1.0, 1.0};
    tracker.add({&value, 1}, forecasts, two);
  });
}

TEST_F(SeriesFinish, TheSpreadTravelsWithTheModel) {
  const auto data = open(walk(200), 3);
  Model trained = model(*data, 1);
  fit_error_distribution(trained, *data);
  const std::string path = folder_.path("model.safetensors");
  trained.save(path);
  const Model loaded = Model::load(path);
  const ErrorDistribution& again = loaded.data().series.errors;
  EXPECT_EQ(again.levels, trained.data().series.errors.levels);
  EXPECT_EQ(again.quantiles, trained.data().series.errors.quantiles);
  EXPECT_EQ(again.scales, trained.data().series.errors.scales);
  EXPECT_EQ(again.relative, trained.data().series.errors.relative);
  ASSERT_EQ(again.endings.size(), 1u);
  EXPECT_EQ(again.endings[0].values, trained.data().series.errors.endings[0].values);
  EXPECT_EQ(again.endings[0].widths, trained.data().series.errors.endings[0].widths);
  EXPECT_NO_THROW((void)evaluate(trained, *data, {})) << "the dataset knows no spread";
}

TEST_F(SeriesFinish, SeveralModelsForecastTheirMean) {
  const std::vector<double> values = walk(120);
  const auto data = open(values, 3);
  std::vector<Model> members;
  for (const std::uint64_t seed : {1, 2, 3}) {
    members.push_back(model(*data, seed));
    Random random(seed);
    for (float& value : parameter(members.back(), "head.weight")) value = static_cast<float>(random.normal());
    members.back().impl().parameters->changed();
  }
  const Model ensemble = Model::combine(members);
  EXPECT_EQ(ensemble.spec().members, 3);
  constexpr Index steps = 37;
  std::vector<float> features;
  for (Index i = 0; i < steps; ++i)
    features.push_back(static_cast<float>(data->description().inputs[0].normal(values[i])));
  std::vector<double> mean(static_cast<std::size_t>(steps * 3), 0.0);
  std::vector<float> outputs(mean.size());
  for (const Model& member : members) {
    ModelState state = member.state(1);
    member.forward(1, steps, std::span<const float>(features), outputs, state);
    for (std::size_t i = 0; i < outputs.size(); ++i) mean[i] += static_cast<double>(outputs[i]) / 3.0;
  }
  // In two parts, so that every member's state must be carried; from a file, so that its weights must be there.
  const std::string path = folder_.path("ensemble.safetensors");
  ensemble.save(path);
  const Model loaded = Model::load(path);
  ModelState state = loaded.state(1);
  constexpr Index first = 20;
  loaded.forward(1, first, std::span<const float>(features).first(first), std::span(outputs).first(3 * first), state);
  loaded.forward(1, steps - first, std::span<const float>(features).subspan(first),
                 std::span(outputs).subspan(3 * first), state);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    // Three heads' products of 8 values near 1 are rounded and added.
    EXPECT_NEAR(static_cast<double>(outputs[i]), mean[i], 64.0 * 1.2e-7 * (1.0 + std::abs(mean[i]))) << i;
  }
}

TEST_F(SeriesFinish, OnlyModelsOfOneFormAreCombined) {
  const auto data = open(walk(120), 3);
  std::vector<Model> members;
  EXPECT_THAT([&] { (void)Model::combine(members); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("at least one")));
  members.push_back(model(*data, 1));
  members.emplace_back(ModelSpec{.cell = "gru", .width = 12, .blocks = 1}, data->description(), 1);
  EXPECT_THAT([&] { (void)Model::combine(members); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("members must all be of one form")));
  members.pop_back();
  members.push_back(model(*data, 2));
  Model ensemble = Model::combine(members);
  EXPECT_THAT([&] { (void)train(ensemble, *data, TrainOptions()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("not an ensemble of 2")));
}

}  // namespace
}  // namespace penstock
