#include "train/series_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "train/normalise.h"
#include "train/season_choice.h"

namespace penstock::data {
namespace {

using training::Segment;

std::vector<std::span<const double>> spans_of(const std::vector<std::vector<double>>& values) {
  return {values.begin(), values.end()};
}

/// What is subtracted from the values of a segment, and what they are divided by then.
Scaling scaling_of(const FittedColumn& fitted, const Segment& segment) {
  if (segment.group < 0) return {fitted.column.mean, fitted.column.scale};
  return fitted.groups[static_cast<std::size_t>(segment.group)];
}

class SeriesPlanner {
 public:
  SeriesPlanner(const CsvTable& table, const SeriesTable& series, SeriesPart part, const SeriesOptions& options)
      : table_(table), series_(series), part_(part), options_(options) {}

  /// `season`: 0 if it is to be found.
  training::LinearChoice choose(std::size_t position, bool logarithm, Index season) const {
    const FittedColumn fitted = fit_column(series_, table_, position, part_, logarithm);
    std::vector<std::vector<double>> values = values_of(series_, position, part_, logarithm);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Scaling scaling = scaling_of(fitted, series_.segments[i]);
      for (double& value : values[i]) value = (value - scaling.mean) / scaling.scale;
    }
    const auto z = spans_of(values);
    const auto found =
        season > 0 ? training::ChosenSeason{.rows = season} : training::choose_season(z, options_.horizon);
    if (!options_.autoregression) return {.horizon = options_.horizon, .season = found.rows, .error = 0.0, .parts = {}};
    const training::RawValue raw = raw_values(position, fitted, logarithm);
    auto choice = training::choose_linear_forecast(z, options_.horizon, found.rows, found.rows, raw);
    if (found.plain) return choice;
    // Swings that come and go look like a season too: one that is will forecast.
    auto without = training::choose_linear_forecast(z, options_.horizon, 1, found.rows, raw);
    return choice.error < found.most_error * without.error ? std::move(choice) : std::move(without);
  }

  /// Logarithms are taken where they forecast clearly better: they cost a forecast that is off upwards dearly. With a
  /// season that is because its swings grow with the values, and will be so later; without one because growth was
  /// exponential, which seldom lasts.
  std::pair<training::LinearChoice, bool> choose(std::size_t position, Transform transform) const {
    const bool possible = is_positive(position);
    if (transform == Transform::logarithm) {
      if (!possible) {
        fail(ErrorCode::bad_input, "{}: column {} has values that are not positive, and so have no logarithm",
             table_.header().source(), in_quotes(table_.header().names()[position]));
      }
      return {choose(position, true, options_.season), true};
    }
    training::LinearChoice plain = choose(position, false, options_.season);
    if (transform == Transform::none || !options_.autoregression || !possible) return {std::move(plain), false};
    training::LinearChoice logarithm = choose(position, true, options_.season);
    const bool seasonal = logarithm.season > 1 && plain.season > 1;
    if (!(logarithm.error < (seasonal ? clearly : by_far) * plain.error)) return {std::move(plain), false};
    return {std::move(logarithm), true};
  }

 private:
  static constexpr double clearly = 0.95;  // of the mean square error: so much less is no chance
  static constexpr double by_far = 0.5;

  bool is_positive(std::size_t position) const {
    return std::ranges::all_of(series_.columns[position], [](double value) { return value > 0.0; });
  }

  /// Errors count in the values' own unit; those of groups in units of the group, whose sizes may differ by much.
  training::RawValue raw_values(std::size_t position, const FittedColumn& fitted, bool logarithm) const {
    struct Unit {
      Scaling scaling;
      double unit;
    };
    std::vector<Unit> units;
    const FittedColumn plain = logarithm ? fit_column(series_, table_, position, part_, false) : fitted;
    for (const Segment& segment : series_.segments) {
      units.push_back({scaling_of(fitted, segment), segment.group < 0 ? 1.0 : scaling_of(plain, segment).scale});
    }
    return [units = std::move(units), logarithm](std::size_t series, double z) {
      const auto& [scaling, unit] = units[series];
      const double value = z * scaling.scale + scaling.mean;
      return (logarithm ? std::exp(value) : value) / unit;
    };
  }

  const CsvTable& table_;
  const SeriesTable& series_;
  SeriesPart part_;
  const SeriesOptions& options_;
};

/// Errors of a linear forecast from one row.
void add_errors(const TargetRows& rows, const SeriesPlan& plan, const Autoregression& linear, const Segment& segment,
                Index row, const std::function<bool(Index, Index)>& is_known, training::RowErrors& to) {
  to.rows.push_back(row);
  const Index width = rows.targets * rows.horizon;
  for (Index i = 0; i < width; ++i) {
    const Index c = i % rows.targets, ahead = row + 1 + i / rows.targets;
    float error = std::numeric_limits<float>::quiet_NaN();
    if (plan.linear[c] && ahead < segment.training_end && is_known(ahead, c)) {
      float forecast = rows.values[row * rows.targets + c] + linear.bias[i];
      for (Index k = 0; k < linear.lags; ++k) {
        forecast += linear.weights[k * width + i] * rows.values[(row - k) * rows.targets + c];
      }
      error = forecast - rows.values[ahead * rows.targets + c];
    }
    to.errors.push_back(error);
  }
}

/// The end of so large a part of what each segment trains on.
std::vector<Index> ends_of(const std::vector<Segment>& segments, double share) {
  std::vector<Index> ends;
  for (const Segment& segment : segments) {
    ends.push_back(segment.first + static_cast<Index>(share * static_cast<double>(segment.training_rows())));
  }
  return ends;
}

}  // namespace

std::vector<std::vector<double>> values_of(const SeriesTable& series, std::size_t position, SeriesPart part,
                                           bool logarithm) {
  std::vector<std::vector<double>> all;
  for (const Segment& segment : series.segments) {
    const auto begin = series.columns[position].begin();
    auto& values = all.emplace_back(begin + segment.first,
                                    begin + (part == SeriesPart::training ? segment.training_end : segment.end));
    for (double& value : values) value = logarithm ? std::log(value) : value;
  }
  return all;
}

FittedColumn fit_column(const SeriesTable& series, const CsvTable& table, std::size_t position, SeriesPart part,
                        bool logarithm) {
  const std::string& name = table.header().names()[position];
  std::vector<std::vector<double>> pooled(std::max<std::size_t>(series.groups.size(), 1));
  const auto all = values_of(series, position, part, logarithm);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& values = pooled[static_cast<std::size_t>(std::max<Index>(series.segments[i].group, 0))];
    values.insert(values.end(), all[i].begin(), all[i].end());
  }
  FittedColumn result;
  if (series.groups.empty()) {
    result.column = fit_column(name, pooled.front(), table.header().source());
  } else {
    result.column.name = name;
    for (const auto& values : pooled) {
      const Column column = fit_column(name, values, table.header().source());
      result.groups.push_back({column.mean, column.scale});
    }
  }
  result.column.logarithm = logarithm;
  return result;
}

SeriesPlan plan_series(const CsvTable& table, const SeriesTable& series, const SeriesOptions& options,
                       const std::vector<std::size_t>& inputs, const std::vector<std::size_t>& targets,
                       const DataDescription* origin) {
  const SeriesPlanner planner(table, series, SeriesPart::training, options);
  const auto transform_of = [&](std::size_t position) {
    const std::string& name = table.header().names()[position];
    const bool logarithm = origin != nullptr && std::ranges::any_of(origin->inputs, [&](const Column& input) {
                             return input.logarithm && input.name == name;
                           });
    return logarithm ? Transform::logarithm : options.transform;
  };
  SeriesPlan result;
  result.logarithms.assign(series.columns.size(), false);
  result.linear.resize(targets.size());
  for (std::size_t c = 0; c < targets.size(); ++c) {
    if (std::ranges::find(inputs, targets[c]) == inputs.end()) continue;
    auto [choice, logarithm] = planner.choose(targets[c], transform_of(targets[c]));
    result.logarithms[targets[c]] = logarithm;
    if (result.season == 0) result.season = choice.season;
    if (options.autoregression) result.linear[c] = std::move(choice);
  }
  return result;
}

SeriesPlan plan_again(const SeriesPlan& first, const CsvTable& table, const SeriesTable& series,
                      const SeriesOptions& options, const std::vector<std::size_t>& targets) {
  const SeriesPlanner planner(table, series, SeriesPart::all, options);
  SeriesPlan result = first;
  for (std::size_t c = 0; c < targets.size(); ++c) {
    if (!result.linear[c]) continue;
    result.linear[c] = planner.choose(targets[c], first.logarithms[targets[c]], first.linear[c]->season);
  }
  return result;
}

Autoregression fit_linear(const TargetRows& rows, const SeriesPlan& plan, const std::vector<Index>& ends) {
  const auto targets = static_cast<std::size_t>(rows.targets);
  const Index width = rows.targets * rows.horizon;
  std::vector<training::LinearForecast> forecasts(targets);
  Autoregression result;
  for (std::size_t c = 0; c < targets; ++c) {
    if (!plan.linear[c]) continue;
    std::vector<std::vector<double>> z;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      auto& values = z.emplace_back();
      for (Index row = rows.segments[i].first; row < ends[i]; ++row) {
        values.push_back(static_cast<double>(rows.values[row * targets + c]));
      }
    }
    forecasts[c] = training::fit_linear_forecast(spans_of(z), *plan.linear[c]);
    result.lags = std::max(result.lags, forecasts[c].lags);
  }
  result.weights.assign(static_cast<std::size_t>(result.lags * width), 0.0f);
  result.bias.assign(static_cast<std::size_t>(width), 0.0f);
  for (std::size_t c = 0; c < targets; ++c) {
    const training::LinearForecast& forecast = forecasts[c];
    for (Index h = 0; plan.linear[c] && h < rows.horizon; ++h) {
      const auto at = static_cast<std::size_t>(h) * targets + c;
      result.bias[at] = static_cast<float>(forecast.bias[h]);
      for (Index k = 0; k < forecast.lags; ++k) {
        const double last = k == 0 ? 1.0 : 0.0;  // which the model adds anyway
        result.weights[k * width + at] = static_cast<float>(forecast.weights[k * rows.horizon + h] - last);
      }
    }
  }
  return result;
}

training::RowErrors past_errors(const TargetRows& rows, const SeriesPlan& plan,
                                const std::function<bool(Index, Index)>& is_known) {
  constexpr double beginnings[] = {0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
  constexpr Index most_origins = 200;  // behind each
  training::RowErrors errors;
  for (std::size_t i = 0; i + 1 < std::size(beginnings); ++i) {
    const std::vector<Index> firsts = ends_of(rows.segments, beginnings[i]);
    const std::vector<Index> ends = ends_of(rows.segments, beginnings[i + 1]);
    Index longest = 0, origins = 0;
    for (std::size_t s = 0; s < firsts.size(); ++s) {
      longest = std::max(longest, firsts[s] - rows.segments[s].first);
      origins += ends[s] - firsts[s];
    }
    if (longest <= 2 * rows.horizon) continue;
    const Autoregression linear = fit_linear(rows, plan, firsts);
    const Index stride = std::max<Index>(1, origins / most_origins);
    for (std::size_t s = 0; s < firsts.size(); ++s) {
      const Segment& segment = rows.segments[s];
      const Index first = std::max(firsts[s], segment.first + linear.lags) - 1;
      for (Index row = first; row + 1 < ends[s]; row += stride) {
        add_errors(rows, plan, linear, segment, row, is_known, errors);
      }
    }
  }
  return errors;
}

}  // namespace penstock::data
