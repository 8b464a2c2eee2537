#include "penstock/forecast/score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "forecast/linear/season.h"
#include "penstock/data_description.h"

namespace penstock {

namespace {

/// Means of errors, weighted by the number of values they are of.
class MeanErrors {
 public:
  void add(const ForecastErrors& errors, double count) {
    squares_ += count * errors.rmse * errors.rmse;
    absolute_ += count * errors.mae;
    relative_ += count * errors.smape;
    count_ += count;
    if (!(errors.mase > 0.0)) return;
    scaled_ += count * errors.mase;
    scaled_count_ += count;
  }
  /// Adds a single forecast, without its MASE.
  void add(double forecast, double value) {
    const double error = std::abs(forecast - value), size = std::abs(forecast) + std::abs(value);
    add({.rmse = error, .mae = error, .mase = 0.0, .smape = size > 0.0 ? 2.0 * error / size : 0.0}, 1.0);
  }
  double count() const { return count_; }
  ForecastErrors errors() const {
    const double n = std::max(count_, 1.0);
    return {.rmse = std::sqrt(squares_ / n),
            .mae = absolute_ / n,
            .mase = scaled_count_ > 0.0 ? scaled_ / scaled_count_ : 0.0,
            .smape = relative_ / n};
  }

 private:
  double squares_ = 0.0, absolute_ = 0.0, relative_ = 0.0, count_ = 0.0, scaled_ = 0.0, scaled_count_ = 0.0;
};

/// The latest known row of the same season as the one `ahead` of `row`; the first row where that is older.
Index season_before(Index first, Index row, Index ahead, Index season) {
  const Index seasons = (ahead + season - 1) / season;
  return std::max(first, row + ahead - season * seasons);
}

/// Mean absolute change over a season in parts of a series.
double seasonal_change(const std::vector<std::span<const double>>& parts, Index season) {
  double sum = 0.0, count = 0.0;
  for (const std::span<const double> values : parts) {
    for (std::size_t row = static_cast<std::size_t>(season); row < values.size(); ++row) {
      sum += std::abs(values[row] - values[row - static_cast<std::size_t>(season)]);
      ++count;
    }
  }
  return count > 0.0 ? sum / count : 0.0;
}

const Rival* find_rival(const ColumnScore& score, const std::string& name) {
  const auto found = std::ranges::find(score.rivals, name, &Rival::name);
  return found == score.rivals.end() ? nullptr : &*found;
}

QuantileScore mean_quantiles(std::span<const GroupScore> groups, std::size_t column, double count) {
  QuantileScore mean{.levels = groups.front().columns[column].quantiles->levels};
  for (const GroupScore& group : groups) {
    const ColumnScore& score = group.columns[column];
    const double share = static_cast<double>(score.scored) / count;
    mean.coverage += share * score.quantiles->coverage;
    mean.pinball += share * score.quantiles->pinball;
  }
  return mean;
}

ColumnScore score_column(std::span<const GroupScore> groups, std::size_t column) {
  const ColumnScore& first = groups.front().columns[column];
  ColumnScore all;
  all.column = first.column;
  all.season = first.season;
  MeanErrors model;
  for (const GroupScore& group : groups) {
    const ColumnScore& score = group.columns[column];
    all.scored += score.scored;
    model.add(score.model, static_cast<double>(score.scored));
  }
  all.model = model.errors();
  for (const Rival& rival : first.rivals) {
    MeanErrors errors;
    bool everywhere = true;
    for (const GroupScore& group : groups) {
      const ColumnScore& score = group.columns[column];
      const Rival* const same = find_rival(score, rival.name);
      everywhere = everywhere && same != nullptr;
      if (same != nullptr) errors.add(same->errors, static_cast<double>(score.scored));
    }
    if (everywhere) all.rivals.push_back({rival.name, errors.errors()});
  }
  if (first.quantiles) all.quantiles = mean_quantiles(groups, column, static_cast<double>(all.scored));
  return all;
}

}  // namespace

const Rival& ColumnScore::best_rival() const {
  return *std::ranges::min_element(rivals, {}, [](const Rival& rival) { return rival.errors.rmse; });
}

ForecastScorer::ForecastScorer(const DataDescription& data, std::vector<double> levels)
    : data_(data), levels_(std::move(levels)) {
  require(!levels_.empty() && std::ranges::is_sorted(levels_), "levels must be one or more, ascending");
}

void ForecastScorer::add(std::span<const double> values, std::span<const double> forecasts,
                         std::span<const double> widths) {
  const std::size_t targets = data_.targets.size();
  require(values.size() == targets, "values must hold {} values, not {}", targets, values.size());
  const auto outputs = static_cast<std::size_t>(data_.output_size());
  require(forecasts.empty() || forecasts.size() == outputs, "forecasts must hold {} values or none, not {}", outputs,
          forecasts.size());
  require(widths.empty() || widths.size() == targets, "widths must hold {} values or none, not {}", targets,
          widths.size());
  const auto row = static_cast<Index>(places_.size());
  const bool begins = row == 0 || (!starts_.empty() && starts_.back() == row);
  require(!forecasts.empty() || begins || places_.back() < 0,
          "forecasts must be given of every row behind the first of a file that has any");
  places_.push_back(forecasts.empty() ? -1 : static_cast<Index>(forecasts_.size() / outputs));
  values_.insert(values_.end(), values.begin(), values.end());
  forecasts_.insert(forecasts_.end(), forecasts.begin(), forecasts.end());
  if (forecasts.empty()) return;
  widths_.insert(widths_.end(), widths.begin(), widths.end());
  if (widths.empty()) widths_.insert(widths_.end(), targets, 1.0);
}

std::vector<ForecastScorer::File> ForecastScorer::files() const {
  const auto rows = static_cast<Index>(places_.size());
  std::vector<Index> bounds = {0};
  for (const Index start : starts_) {
    if (start > bounds.back()) bounds.push_back(start);
  }
  if (rows > bounds.back()) bounds.push_back(rows);
  std::vector<File> all;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    Index scored = bounds[i];
    while (scored < bounds[i + 1] && places_[scored] < 0) ++scored;
    all.push_back({bounds[i], bounds[i + 1], scored});
  }
  return all;
}

const double* ForecastScorer::forecasts_from(Index row, std::size_t target) const {
  return forecasts_.data() + places_[row] * data_.output_size() + target;
}

std::vector<double> ForecastScorer::carry(std::vector<double> column, const std::vector<File>& files) {
  for (const File& file : files) {
    const auto begin = column.begin() + file.first, end = column.begin() + file.end;
    const auto known = std::find_if(begin, end, [](double value) { return !std::isnan(value); });
    double last = known == end ? 0.0 : *known;
    for (auto value = begin; value != end; ++value) last = *value = std::isnan(*value) ? last : *value;
  }
  return column;
}

ColumnScore ForecastScorer::score(std::size_t target, const std::vector<File>& files) const {
  const std::size_t targets = data_.targets.size();
  std::vector<double> column(places_.size());
  for (std::size_t row = 0; row < column.size(); ++row) column[row] = values_[row * targets + target];
  const std::vector<double> past = carry(column, files);
  // Rows known before the first forecast, or all rows if none were.
  Index known = 0;
  for (const File& file : files) known += file.scored - file.first;
  std::vector<std::span<const double>> before;
  for (const File& file : files) {
    const Index end = known > 1 ? std::min(file.scored + 1, file.end) : file.end;
    before.push_back(
        std::span(past).subspan(static_cast<std::size_t>(file.first), static_cast<std::size_t>(end - file.first)));
  }
  ColumnScore result;
  result.column = data_.targets[target].name;
  result.season = data_.series.season > 0 ? data_.series.season : training::look_for_season(before).rows;
  const Index season = result.season;
  MeanErrors model, last, seasonal, drift;
  for (const File& file : files) {
    for (Index row = file.scored; row < file.end; ++row) {
      const double* const forecasts = forecasts_from(row, target);
      const Index rows = row - file.first;
      const double slope = rows > 0 ? (past[row] - past[file.first]) / static_cast<double>(rows) : 0.0;
      for (Index ahead = 1; ahead <= data_.series.horizon && row + ahead < file.end; ++ahead) {
        const double value = column[row + ahead];
        if (std::isnan(value)) continue;
        model.add(forecasts[static_cast<std::size_t>(ahead - 1) * targets], value);
        last.add(past[row], value);
        seasonal.add(past[season_before(file.first, row, ahead, season)], value);
        drift.add(past[row] + slope * static_cast<double>(ahead), value);
      }
    }
  }
  const double scale = seasonal_change(before, season);
  const auto errors_of = [&](const MeanErrors& mean) {
    ForecastErrors errors = mean.errors();
    errors.mase = scale > 0.0 ? errors.mae / scale : 0.0;
    return errors;
  };
  result.scored = static_cast<Index>(model.count());
  result.model = errors_of(model);
  if (!data_.series.errors.empty()) result.quantiles = score_quantiles(target, column, files);
  result.rivals.push_back({"the last value", errors_of(last)});
  if (season > 1) result.rivals.push_back({"a season ago", errors_of(seasonal)});
  result.rivals.push_back({"drift", errors_of(drift)});
  return result;
}

QuantileScore ForecastScorer::score_quantiles(std::size_t target, std::span<const double> column,
                                              const std::vector<File>& files) const {
  const std::size_t targets = data_.targets.size();
  const Column& scale = data_.targets[target];
  QuantileScore score{.levels = levels_};
  ErrorDistribution spread = data_.series.errors;  // of each row
  double within = 0.0, count = 0.0;
  for (const File& file : files) {
    for (Index row = file.scored; row < file.end; ++row) {
      const double width = widths_[static_cast<std::size_t>(places_[row]) * targets + target];
      for (Index step = 0; step < data_.series.horizon && row + step + 1 < file.end; ++step) {
        const Index output = step * static_cast<Index>(targets) + static_cast<Index>(target);
        if (std::isnan(column[row + step + 1])) continue;
        spread.scales[output] = data_.series.errors.scales[output] * width;
        const double value = column[row + step + 1], middle = scale.normal(forecasts_from(row, 0)[output]);
        double lowest = 0.0, highest = 0.0;
        for (std::size_t i = 0; i < levels_.size(); ++i) {
          const double quantile = spread.quantile(levels_[i], output, scale, middle);
          score.pinball += std::max(levels_[i] * (value - quantile), (levels_[i] - 1.0) * (value - quantile));
          if (i == 0) lowest = quantile;
          highest = quantile;
        }
        within += value >= lowest && value <= highest ? 1.0 : 0.0;
        ++count;
      }
    }
  }
  score.coverage = within / std::max(count, 1.0);
  score.pinball /= std::max(count, 1.0) * static_cast<double>(levels_.size());
  return score;
}

std::vector<ColumnScore> ForecastScorer::scores() const {
  std::vector<ColumnScore> all;
  const std::vector<File> each = files();
  if (std::ranges::none_of(each, [](const File& file) { return file.scored + 1 < file.end; })) return all;
  for (std::size_t target = 0; target < data_.targets.size(); ++target) {
    ColumnScore of_target = score(target, each);
    if (of_target.scored > 0) all.push_back(std::move(of_target));
  }
  return all;
}

std::vector<ColumnScore> score_all(std::span<const GroupScore> groups) {
  if (groups.size() == 1) return groups.front().columns;
  std::vector<ColumnScore> all;
  for (std::size_t column = 0; !groups.empty() && column < groups.front().columns.size(); ++column) {
    all.push_back(score_column(groups, column));
  }
  return all;
}

}  // namespace penstock
