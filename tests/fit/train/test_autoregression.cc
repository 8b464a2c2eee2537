// Linear forecasts: what they find, and that a model with one says what it says.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numbers>
#include <thread>
#include <vector>

#include "base/random.h"
#include "forecast/linear/autoregression.h"
#include "forecast/linear/season_choice.h"
#include "nn/model/model_impl.h"
#include "penstock/data/tasks.h"
#include "penstock/forecast/score.h"
#include "penstock/train.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using training::LinearForecast;

training::LinearChoice choose_linear_forecast(std::span<const double> z, Index horizon, Index season,
                                              double (*raw)(double)) {
  const auto raw_of_one = [&](std::size_t, Index, double value) { return raw(value); };
  return training::choose_linear_forecast(std::array{z}, horizon, season, season, raw_of_one);
}

LinearForecast fit_linear_forecast(std::span<const double> z, const training::LinearChoice& choice) {
  return training::fit_linear_forecast(std::array{z}, choice);
}

double same(double value) { return value; }
double same_of_many(std::size_t, Index, double value) { return value; }

/// Root mean square of errors of all forecasts behind `first`.
double error_of(const LinearForecast& forecast, const std::vector<double>& z, Index first) {
  double squares = 0.0, count = 0.0;
  for (Index row = first; row < static_cast<Index>(z.size()); ++row) {
    for (Index ahead = 1; ahead <= forecast.horizon && row + ahead < static_cast<Index>(z.size()); ++ahead) {
      const double error = forecast.at(z, row, ahead) - z[row + ahead];
      squares += error * error;
      ++count;
    }
  }
  return std::sqrt(squares / count);
}

LinearForecast fitted(const std::vector<double>& z, Index training, Index horizon, Index season) {
  const auto seen = std::span(z).first(static_cast<std::size_t>(training));
  return fit_linear_forecast(seen, choose_linear_forecast(seen, horizon, season, same));
}

TEST(LinearForecast, FollowsARecurrenceThatItCanRepresent) {
  std::vector<double> z;
  for (int i = 0; i < 120; ++i) {
    z.push_back(0.01 * i + std::sin(2.0 * std::numbers::pi * i / 12.0) +
                0.3 * std::cos(2.0 * std::numbers::pi * i / 6.0));
  }
  EXPECT_LT(error_of(fitted(z, 96, 12, 12), z, 95), 1e-2);
}

TEST(LinearForecast, OfARandomWalkIsNearItsLastValue) {
  Random random(5);
  std::vector<double> z = {0.0};
  for (int i = 0; i < 400; ++i) z.push_back(z.back() + random.normal());
  const LinearForecast forecast = fitted(z, 320, 5, 1);
  LinearForecast last{
      .lags = 1, .horizon = 5, .weights = std::vector<double>(5, 1.0), .bias = std::vector<double>(5, 0.0)};
  EXPECT_LT(error_of(forecast, z, 319), 1.1 * error_of(last, z, 319));
}

TEST(LinearForecast, OfADriftGoesOnFarBeyondWhatWasSeen) {
  constexpr Index rows = 2400, learnt = 400, horizon = 6;
  constexpr double drift = 0.3;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    Random random(seed);
    std::vector<double> z = {0.0};
    while (static_cast<Index>(z.size()) < rows) z.push_back(z.back() + drift + random.normal());
    LinearForecast best{.lags = 1, .horizon = horizon, .weights = std::vector<double>(horizon, 1.0), .bias = {}};
    for (Index h = 1; h <= horizon; ++h) best.bias.push_back(drift * static_cast<double>(h));
    const double ratio = error_of(fitted(z, learnt, horizon, 1), z, learnt) / error_of(best, z, learnt);
    // A drift that is the mean of n steps has a variance of 1/n of theirs, which adds h^2/n to a mean square error of
    // h: (2 H + 1) / (3 n) of the sum over all distances. Three deviations of it are allowed for.
    const double allowed = 9.0 * static_cast<double>(2 * horizon + 1) / static_cast<double>(3 * learnt);
    EXPECT_LT(ratio * ratio, 1.0 + allowed) << seed;
  }
}

// No five beginnings of twelve rows can be compared, and yet they say where a steady rise goes.
TEST(LinearForecast, OfADozenRowsGoesOnAsTheyDo) {
  constexpr Index rows = 12, horizon = 4, read = 8;
  constexpr double slope = 1.0, noise = 0.05;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Random random(seed);
    std::vector<double> z;
    for (Index i = 0; i < rows; ++i) z.push_back(slope * static_cast<double>(i) + noise * random.normal());
    const LinearForecast forecast = fitted(z, rows, horizon, 1);
    EXPECT_EQ(forecast.lags, read);
    for (Index h = 1; h <= horizon; ++h) {
      // The variance of a line through n rows is 1/n + (distance from their middle)^2 * 12 / (n (n^2 - 1)) times that
      // of one row; a smoothing that follows the last rows does no better than a line through half of them.
      const double n = read / 2.0, distance = (n - 1.0) / 2.0 + static_cast<double>(h);
      const double deviation = noise * std::sqrt(1.0 / n + 12.0 * distance * distance / (n * (n * n - 1.0)));
      EXPECT_NEAR(forecast.at(z, rows - 1, h), slope * static_cast<double>(rows - 1 + h), 4.0 * deviation) << seed;
    }
  }
}

// Nearly equal changes say nothing about a jump. At most the jump itself may come again in every row.
TEST(LinearForecast, OfEvenGrowthThatEndsWithAJumpIsNotWild) {
  constexpr Index rows = 26, horizon = 4;
  constexpr double growth = 0.04, jump = -0.1, noise = 1e-4;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
    Random random(seed);
    std::vector<double> z;
    for (Index i = 0; i < rows; ++i) z.push_back(growth * static_cast<double>(i) + noise * random.normal());
    z.back() += jump;
    const LinearForecast forecast = fitted(z, rows, horizon, 1);
    for (Index h = 1; h <= horizon; ++h) {
      const double ahead = static_cast<double>(h);
      EXPECT_NEAR(forecast.at(z, rows - 1, h), z.back() + growth * ahead, std::abs(jump) * ahead) << seed;
    }
  }
}

TEST(LinearForecast, HasRegressionsOfEveryDistanceFromEightyRowsOn) {
  constexpr Index fewest = 80, horizon = 4;
  Random random(8);
  std::vector<double> z = {0.0};
  while (static_cast<Index>(z.size()) < fewest) z.push_back(0.5 * z.back() + random.normal());
  const auto has_direct = [&](Index rows) {
    const auto parts =
        choose_linear_forecast(std::span(z).first(static_cast<std::size_t>(rows)), horizon, 1, same).parts;
    EXPECT_FALSE(parts.empty());
    return std::ranges::any_of(parts, [](const auto& part) { return !part.regression.rolled; });
  };
  EXPECT_FALSE(has_direct(fewest - 1));
  EXPECT_TRUE(has_direct(fewest));
}

TEST(LinearForecast, OfTooFewRowsOrOfAConstantIsTheLastValue) {
  for (const std::vector<double>& z : {std::vector<double>{1.0, 2.0, 3.0}, std::vector<double>(100, 4.0)}) {
    const LinearForecast forecast = fitted(z, static_cast<Index>(z.size()), 2, 1);
    EXPECT_DOUBLE_EQ(forecast.at(z, static_cast<Index>(z.size()) - 1, 1), z.back());
    EXPECT_DOUBLE_EQ(forecast.at(z, static_cast<Index>(z.size()) - 1, 2), z.back());
  }
}

class AutoregressiveModel : public testing::Test {
 protected:
  static constexpr Index rows = 150, horizon = 6;

  AutoregressiveModel() {
    Random random(11);
    std::ofstream file(path_);
    file << "a,b\n";
    for (Index i = 0; i < rows; ++i) {
      const double angle = 2.0 * std::numbers::pi * static_cast<double>(i) / 8.0;
      values_.push_back(std::exp(0.01 * static_cast<double>(i)) * (3.0 + std::sin(angle)) + 0.01 * random.normal());
      file << fmt::format("{},{}\n", values_.back(), random.normal());
    }
    file.close();
    options_ = {.inputs = {"b", "a"},
                .targets = {"a"},
                .horizon = horizon,
                .from_last = true,
                .autoregression = true,
                .transform = Transform::automatic};
    data_ = open_series(path_, options_);
  }

  Model model() const {
    ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
    use_linear_forecast(spec, *data_);
    Model result(spec, data_->description(), 3);
    fit_autoregression(result, *data_);
    return result;
  }

  /// Forecasts [rows, horizon] of the whole series, raw, in pieces of so many steps.
  std::vector<double> forecasts(const Model& model, Index piece) const {
    const DataDescription& data = model.data();
    const RowReader reader(data, "a,b", "test");
    RowReader rows_of_file(data, "a,b", "test");
    std::ifstream file(path_);
    std::string line;
    std::getline(file, line);
    std::vector<float> features(static_cast<std::size_t>(rows * 2));
    for (Index i = 0; i < rows && std::getline(file, line); ++i) {
      EXPECT_TRUE(rows_of_file.read(line, std::span(features).subspan(static_cast<std::size_t>(2 * i), 2)));
    }
    std::vector<float> outputs(static_cast<std::size_t>(rows * horizon));
    ModelState state = model.state(1);
    for (Index begin = 0; begin < rows; begin += piece) {
      const Index steps = std::min(piece, rows - begin);
      model.forward(1, steps, std::span<const float>(features).subspan(2 * begin, 2 * steps),
                    std::span(outputs).subspan(horizon * begin, horizon * steps), state);
    }
    std::vector<double> raw;
    for (const float value : outputs) raw.push_back(data.targets[0].raw(static_cast<double>(value)));
    return raw;
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.path("series.csv");
  std::vector<double> values_;
  SeriesOptions options_;
  std::unique_ptr<Dataset> data_;
};

TEST_F(AutoregressiveModel, WarnsOfNoVanishingGradientWhereItsHeadStartsAtZero) {
  Model model = this->model();
  TrainOptions options;
  options.max_steps = 1;
  options.execution.threads = 1;
  const TrainResult result = train(model, *data_, options);
  EXPECT_EQ(result.last.first_gradient_ratio, 1.0);
  EXPECT_EQ(result.last.warning, "");
}

TEST_F(AutoregressiveModel, BeginsAsItsLinearForecast) {
  EXPECT_EQ(data_->description().series.season, 8);
  EXPECT_TRUE(data_->description().targets[0].logarithm) << "its swings grow with it";
  const Autoregression& linear = *linear_forecast(*data_);
  const Column& column = data_->description().targets[0];
  const std::vector<double> said = forecasts(model(), rows);
  for (Index row = linear.lags; row < rows; ++row) {
    for (Index h = 0; h < horizon; ++h) {
      double z = column.normal(values_[row]) + static_cast<double>(linear.bias[h]);
      for (Index k = 0; k < linear.lags; ++k) {
        z += static_cast<double>(linear.weights[k * horizon + h]) * column.normal(values_[row - k]);
      }
      const double expected = column.raw(z);
      ASSERT_NEAR(said[row * horizon + h], expected, 1e-4 * std::abs(expected)) << row << " " << h;
    }
  }
}

TEST_F(AutoregressiveModel, SaysTheSameHoweverASequenceIsCut) {
  const Model trained = model();
  const std::vector<double> whole = forecasts(trained, rows);
  for (const Index piece : {1, 7, 64}) {
    const std::vector<double> cut = forecasts(trained, piece);
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(cut[i], whole[i], 1e-4 * std::abs(whole[i]));
  }
}

TEST_F(AutoregressiveModel, TrainingIsNoWorseAndLeavesTheLinearForecastAlone) {
  Model trained = model();
  TrainOptions options = suggest_options(*data_);
  options.max_steps = 40;
  options.validate_steps = 10;
  options.execution.threads = 1;
  const double before = evaluate(trained, *data_, options).loss;
  const TrainResult result = train(trained, *data_, options);
  EXPECT_LE(result.validation->loss, before);
  const Model fresh = model();
  bool found = false;
  for (const nn::ParameterEntry& entry : trained.impl().parameters->layout().entries()) {
    if (!entry.name.starts_with("autoregression.")) continue;
    found = true;
    const auto now = trained.impl().parameters->value(entry), then = fresh.impl().parameters->value(entry);
    EXPECT_TRUE(std::ranges::equal(now, then)) << entry.name;
  }
  EXPECT_TRUE(found);
}

TEST_F(AutoregressiveModel, GoesThroughAFile) {
  const Model trained = model();
  trained.save(folder_.path("model"));
  const Model loaded = Model::load(folder_.path("model"));
  EXPECT_EQ(loaded.spec().branch_fields().lags, trained.spec().branch_fields().lags);
  EXPECT_EQ(forecasts(loaded, rows), forecasts(trained, rows));
}

TEST_F(AutoregressiveModel, TakesAForecastThatIsFittedOnceByWhicheverThreadAsksFirst) {
  std::vector<const Autoregression*> seen(4);
  std::vector<std::thread> threads;
  for (auto& each : seen) threads.emplace_back([&] { each = linear_forecast(*data_); });
  for (std::thread& thread : threads) thread.join();
  for (const Autoregression* const each : seen) EXPECT_EQ(each, linear_forecast(*data_));
  EXPECT_EQ(linear_forecast(*open_task("parity")), nullptr);
}

TEST_F(AutoregressiveModel, HeldOutRowsAreLedIn) {
  Example example;
  double weight = 0.0;
  for (Index i = 0; data_->validation(i, 4, 32, example); ++i) {
    for (const float w : example.weights) weight += static_cast<double>(w);
  }
  // Every held-out row is forecast from every row up to `horizon` before it, as far as those are in the held-out part
  // or the last training row.
  const Index held_out = 30;
  double expected = 0.0;
  for (Index h = 1; h <= horizon; ++h) expected += static_cast<double>(held_out - h + 1);
  EXPECT_EQ(weight, expected);
}

TEST(LogarithmOfASeries, TakesMoreThanGrowthWithoutASeason) {
  // A walk whose steps grow with its values.
  constexpr Index rows = 200, learnt = 160, horizon = 6;
  const test::TemporaryFolder folder;
  for (const std::uint64_t seed : {2, 4, 7}) {
    Random random(seed);
    std::vector<double> logarithms = {0.0}, values = {1.0};
    while (static_cast<Index>(values.size()) < rows) {
      logarithms.push_back(logarithms.back() + 0.03 + 0.02 * random.normal());
      values.push_back(std::exp(logarithms.back()));
    }
    const auto error_of_choice = [&](const std::vector<double>& z, double (*raw)(double)) {
      return choose_linear_forecast(std::span(z).first(learnt), horizon, 1, raw).error;
    };
    const double plain = error_of_choice(values, same);
    const double logarithm = error_of_choice(logarithms, [](double z) { return std::exp(z); });
    ASSERT_LT(logarithm, 0.95 * plain) << "it is better, " << seed;
    ASSERT_GT(logarithm, 0.5 * plain) << "and not twice as good";
    const std::string path = folder.path("series.csv");
    std::ofstream file(path);
    file << "x\n";
    for (const double value : values) file << fmt::format("{}\n", value);
    file.close();
    SeriesOptions options{.horizon = horizon, .from_last = true, .autoregression = true, .season = 1};
    options.transform = Transform::automatic;
    EXPECT_FALSE(open_series(path, options)->description().targets[0].logarithm) << seed;
    options.transform = Transform::logarithm;
    EXPECT_TRUE(open_series(path, options)->description().targets[0].logarithm) << "as it was said";
  }
}

TEST(LinearForecastOfFewSeasons, IsJudgedWhereItHasSeenTwo) {
  // Behind two fifths of the rows no regression on a season ago has enough of them.
  constexpr Index rows = 46, season = 12;
  Random random(6);
  std::vector<double> z;
  for (Index row = 0; row < rows; ++row) {
    z.push_back(3.0 * std::cos(2.0 * std::numbers::pi * static_cast<double>(row % season) / season) +
                0.3 * random.normal());
  }
  const auto choice = choose_linear_forecast(z, season, season, same);
  const auto is_seasonal = [](const auto& part) { return part.regression.shape.seasonal; };
  EXPECT_TRUE(std::ranges::any_of(choice.parts, is_seasonal));
}

TEST(LinearForecast, HoldsAnArimaWithAShareOfAThird) {
  // Errors of a month that are made up for a year later: moving averages, which regressions need many lags for.
  constexpr Index rows = 240, season = 12, learnt = 180;
  constexpr double theta = -0.6, seasonal = -0.7;
  double with = 0.0, without = 0.0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    std::vector<double> z, e;
    for (Index t = 0; t < rows; ++t) {
      e.push_back(random.normal());
      const auto back = [&](Index lag) { return t >= lag ? e[t - lag] : 0.0; };
      double value = e[t] + theta * back(1) + seasonal * back(season) + theta * seasonal * back(season + 1);
      if (t > season) value += z[t - 1] + z[t - season] - z[t - season - 1];
      z.push_back(value);
    }
    const auto seen = std::span(z).first(learnt);
    auto choice = choose_linear_forecast(seen, season, season, same);
    ASSERT_TRUE(choice.arima);
    EXPECT_EQ(choice.arima->period, season);
    EXPECT_NEAR(choice.arima_share, 1.0 / 3.0, 0.1) << seed;
    EXPECT_LT(choice.arima_share + choice.smoothing, 1.0) << seed;
    with += error_of(fit_linear_forecast(seen, choice), z, learnt - 1);
    choice.smoothing /= 1.0 - choice.arima_share;
    choice.arima_share = 0.0;
    without += error_of(fit_linear_forecast(seen, choice), z, learnt - 1);
  }
  EXPECT_LT(with, without);
  const std::vector<double> few(45, 1.0);
  EXPECT_FALSE(choose_linear_forecast(few, 4, 1, same).arima);
}

TEST(LinearForecast, IsTheSameOnAnyNumberOfThreads) {
  constexpr Index rows = 150, season = 12, horizon = 5;
  Random random(9);
  std::vector<double> z;
  for (Index row = 0; row < rows; ++row) {
    const double cycle = std::sin(2.0 * std::numbers::pi * static_cast<double>(row) / season);
    z.push_back((row > 0 ? 0.7 * z.back() : 0.0) + cycle + random.normal());
  }
  const std::array all = {std::span<const double>(z), std::span<const double>(z).subspan(7)};
  const auto chosen = [&](int threads) {
    return training::choose_linear_forecast(all, horizon, season, season, same_of_many, threads);
  };
  const training::LinearChoice want = chosen(1);
  ASSERT_GT(want.smoothing, 0.0);
  ASSERT_TRUE(want.arima);
  for (const int threads : {2, 3, 64}) {
    SCOPED_TRACE(threads);
    const training::LinearChoice got = chosen(threads);
    EXPECT_EQ(got.error, want.error);
    EXPECT_EQ(got.smoothing, want.smoothing);
    EXPECT_EQ(got.arima_share, want.arima_share);
    ASSERT_EQ(got.parts.size(), want.parts.size());
    for (std::size_t i = 0; i < want.parts.size(); ++i) {
      EXPECT_EQ(got.parts[i].regression, want.parts[i].regression);
      EXPECT_EQ(got.parts[i].error, want.parts[i].error);
      EXPECT_EQ(got.parts[i].weight, want.parts[i].weight);
    }
    EXPECT_EQ(training::choose_season(all, horizon, threads).rows, training::choose_season(all, horizon).rows);
  }
}

TEST(LinearForecast, PassesOnWhatFailsOnAThread) {
  const std::vector<double> z(40, 1.0);
  const std::array all = {std::span<const double>(z)};
  const auto fails = [](std::size_t, Index, double) -> double { throw Error(ErrorCode::bad_input, "as it was told"); };
  EXPECT_THROW(training::choose_linear_forecast(all, 2, 1, 1, fails, 3), Error);
}

/// The season of a series of 190 rows, of which 152 are learnt from, as a dataset says it.
Index season_of(const std::vector<double>& values, Index given = 0) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("series.csv");
  std::ofstream file(path);
  file << "x\n";
  for (const double value : values) file << fmt::format("{}\n", value);
  file.close();
  const SeriesOptions options{.horizon = 6, .from_last = true, .autoregression = true, .season = given};
  return open_series(path, options)->description().series.season;
}

TEST(SeasonOfASeries, IsPlainToSeeOrForecasts) {
  constexpr Index rows = 190, learnt = 152;
  for (const std::uint64_t seed : {1, 2, 4}) {
    // Swings of about nine rows that soon drift out of step: alike from one to the next, and no season.
    Random random(seed);
    std::vector<double> swings = {0.0, 0.0};
    while (static_cast<Index>(swings.size()) < rows) {
      const double before = swings[swings.size() - 1], further = swings[swings.size() - 2];
      swings.push_back(2.0 * 0.9 * std::cos(2.0 * std::numbers::pi / 9.0) * before - 0.9 * 0.9 * further +
                       random.normal());
    }
    EXPECT_GT(find_season(std::span(swings).first(learnt)), 1) << seed;
    EXPECT_EQ(season_of(swings), 1) << seed;
    EXPECT_EQ(season_of(swings, 9), 9) << "as it was said";
    std::vector<double> months;
    for (Index row = 0; row < rows; ++row) {
      constexpr double of_months[] = {3, -1, 4, 0, -5, 2, -3, 0, 1, 5, -4, -2};
      months.push_back(0.1 * static_cast<double>(row) + of_months[row % 12] + 2.0 * random.normal());
    }
    EXPECT_EQ(season_of(months), 12) << seed;
  }
}

}  // namespace
}  // namespace penstock
