#include "penstock/score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace penstock {

namespace {

/// Sums of errors, from which the means follow.
struct ErrorSums {
  double squares = 0.0, absolute = 0.0, relative = 0.0;
  Index count = 0;

  void add(double forecast, double value) {
    const double error = forecast - value, size = std::abs(forecast) + std::abs(value);
    squares += error * error;
    absolute += std::abs(error);
    relative += size > 0.0 ? 2.0 * std::abs(error) / size : 0.0;
    ++count;
  }
  /// `scale`: the mean absolute error that MASE counts in; 0: unknown.
  ForecastErrors errors(double scale) const {
    const double n = static_cast<double>(std::max<Index>(count, 1)), mae = absolute / n;
    return {.rmse = std::sqrt(squares / n), .mae = mae, .mase = scale > 0.0 ? mae / scale : 0.0, .smape = relative / n};
  }
};

/// The latest known row of the same season as the one `ahead` of `row`; the first row where that is older.
Index season_before(Index first, Index row, Index ahead, Index season) {
  const Index seasons = (ahead + season - 1) / season;
  return std::max(first, row + ahead - season * seasons);
}

}  // namespace

const Rival& ColumnScore::best_rival() const {
  return *std::ranges::min_element(rivals, {}, [](const Rival& rival) { return rival.errors.rmse; });
}

ForecastScorer::ForecastScorer(const DataDescription& data, std::vector<double> levels)
    : data_(data), levels_(std::move(levels)) {
  require(!levels_.empty() && std::ranges::is_sorted(levels_), "levels must be one or more, ascending");
}

void ForecastScorer::add(std::span<const double> values, std::span<const double> forecasts) {
  const std::size_t targets = data_.targets.size();
  require(values.size() == targets, "values must hold {} values, not {}", targets, values.size());
  const auto outputs = static_cast<std::size_t>(data_.output_size());
  require(forecasts.empty() || forecasts.size() == outputs, "forecasts must hold {} values or none, not {}", outputs,
          forecasts.size());
  require(!forecasts.empty() || forecasts_.empty(),
          "forecasts must be given of every row behind the first that has any");
  if (forecasts_.empty() && !forecasts.empty()) first_ = rows_;
  values_.insert(values_.end(), values.begin(), values.end());
  for (const double value : forecasts) forecasts_.push_back(static_cast<float>(value));
  ++rows_;
}

std::pair<Index, Index> ForecastScorer::file_of(Index row) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
  return {next == starts_.begin() ? 0 : *(next - 1), next == starts_.end() ? rows_ : *next};
}

/// Mean absolute change over a season.
double ForecastScorer::seasonal_change(std::span<const double> values, Index season) const {
  double sum = 0.0, count = 0.0;
  for (Index row = season; row < static_cast<Index>(values.size()); ++row) {
    if (row - season < file_of(row).first) continue;
    sum += std::abs(values[row] - values[row - season]);
    ++count;
  }
  return count > 0.0 ? sum / count : 0.0;
}

ColumnScore ForecastScorer::score(std::size_t target) const {
  const std::size_t targets = data_.targets.size();
  std::vector<double> column(static_cast<std::size_t>(rows_));
  for (std::size_t row = 0; row < column.size(); ++row) column[row] = values_[row * targets + target];
  const auto before = std::span(column).first(static_cast<std::size_t>(first_ > 1 ? first_ + 1 : rows_));
  ColumnScore result;
  result.column = data_.targets[target].name;
  result.season = data_.season > 0 ? data_.season : find_season(before);
  const Index season = result.season;
  ErrorSums model, last, seasonal, drift;
  for (Index row = first_; row < rows_; ++row) {
    const float* const forecasts =
        forecasts_.data() + static_cast<std::size_t>((row - first_) * data_.output_size()) + target;
    const auto [begin, end] = file_of(row);
    const double slope = row > begin ? (column[row] - column[begin]) / static_cast<double>(row - begin) : 0.0;
    for (Index ahead = 1; ahead <= data_.horizon && row + ahead < end; ++ahead) {
      const double value = column[row + ahead];
      model.add(static_cast<double>(forecasts[static_cast<std::size_t>(ahead - 1) * targets]), value);
      last.add(column[row], value);
      seasonal.add(column[season_before(begin, row, ahead, season)], value);
      drift.add(column[row] + slope * static_cast<double>(ahead), value);
    }
  }
  const double scale = seasonal_change(before, season);
  result.scored = model.count;
  result.model = model.errors(scale);
  if (!data_.spread.empty()) result.quantiles = score_quantiles(target, column);
  result.rivals.push_back({"the last value", last.errors(scale)});
  if (season > 1) result.rivals.push_back({"a season ago", seasonal.errors(scale)});
  result.rivals.push_back({"drift", drift.errors(scale)});
  return result;
}

QuantileScore ForecastScorer::score_quantiles(std::size_t target, std::span<const double> column) const {
  const std::size_t targets = data_.targets.size();
  const Column& scale = data_.targets[target];
  QuantileScore score{.levels = levels_};
  double within = 0.0, count = 0.0;
  for (Index row = first_; row < rows_; ++row) {
    const Index end = file_of(row).second;
    for (Index step = 0; step < data_.horizon && row + step + 1 < end; ++step) {
      const Index output = step * static_cast<Index>(targets) + static_cast<Index>(target);
      const float forecast = forecasts_[static_cast<std::size_t>((row - first_) * data_.output_size() + output)];
      const double value = column[row + step + 1], middle = scale.normal(static_cast<double>(forecast));
      double lowest = 0.0, highest = 0.0;
      for (std::size_t i = 0; i < levels_.size(); ++i) {
        const double quantile = data_.spread.quantile(levels_[i], output, scale, middle);
        score.pinball += std::max(levels_[i] * (value - quantile), (levels_[i] - 1.0) * (value - quantile));
        if (i == 0) lowest = quantile;
        highest = quantile;
      }
      within += value >= lowest && value <= highest ? 1.0 : 0.0;
      ++count;
    }
  }
  score.coverage = within / std::max(count, 1.0);
  score.pinball /= std::max(count, 1.0) * static_cast<double>(levels_.size());
  return score;
}

std::vector<ColumnScore> ForecastScorer::scores() const {
  std::vector<ColumnScore> all;
  if (forecasts_.empty() || first_ + 1 >= rows_) return all;
  for (std::size_t target = 0; target < data_.targets.size(); ++target) all.push_back(score(target));
  return all;
}

LabelScore score_labels(std::vector<std::vector<Index>> confusion) {
  LabelScore score;
  const std::size_t classes = confusion.size();
  std::vector<Index> truths(classes, 0), answers(classes, 0);
  Index correct = 0;
  for (std::size_t truth = 0; truth < classes; ++truth) {
    require(confusion[truth].size() == classes, "confusion must be square: {} classes, and {} answers of class {}",
            classes, confusion[truth].size(), truth);
    for (std::size_t answer = 0; answer < classes; ++answer) {
      truths[truth] += confusion[truth][answer];
      answers[answer] += confusion[truth][answer];
    }
    score.scored += truths[truth];
    correct += confusion[truth][truth];
  }
  double f1 = 0.0, seen = 0.0;
  for (std::size_t i = 0; i < classes; ++i) {
    if (truths[i] + answers[i] == 0) continue;
    f1 += 2.0 * static_cast<double>(confusion[i][i]) / static_cast<double>(truths[i] + answers[i]);
    seen += 1.0;
  }
  const auto share = [&](Index count) {
    return score.scored > 0 ? static_cast<double>(count) / static_cast<double>(score.scored) : 0.0;
  };
  score.accuracy = share(correct);
  score.macro_f1 = seen > 0.0 ? f1 / seen : 0.0;
  if (classes > 0) {
    score.majority = std::ranges::max_element(truths) - truths.begin();
    score.majority_accuracy = share(truths[static_cast<std::size_t>(score.majority)]);
  }
  score.confusion = std::move(confusion);
  return score;
}

}  // namespace penstock
