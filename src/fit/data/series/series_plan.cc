#include "data/series/series_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/parallel_tasks.h"
#include "base/quote.h"
#include "base/threads.h"
#include "data/column_scaling.h"
#include "forecast/linear/origins.h"
#include "forecast/linear/season_choice.h"
#include "penstock/work.h"

namespace penstock::data {
namespace {

using training::Segment;

/// Returns the mean and the scale by which the values of a segment are normalised.
Scaling scaling_of(const FittedColumn& fitted, const Segment& segment) {
  if (segment.group < 0) return {fitted.column.mean, fitted.column.scale};
  return fitted.groups[segment.group];
}

class SeriesPlanner {
 public:
  SeriesPlanner(const OpenTable& table, const SeriesTable& series, const SeriesColumns& columns, SeriesPart part,
                const SeriesOptions& options)
      : table_(table),
        series_(series),
        part_(part),
        options_(options),
        work_(options.autoregression ? "choosing linear forecasts" : "looking for a season",
              options.autoregression ? static_cast<Index>(columns.targets.size()) : 1) {
    const std::size_t segments = series.segments.size();
    known_.resize(segments);
    for (const std::size_t position : columns.known) {
      known_values_.push_back(
          normal_values(position, fit_series_column(series_, table_, position, part_, false), false));
      for (std::size_t i = 0; i < segments; ++i) known_[i].emplace_back(known_values_.back()[i]);
    }
  }

  /// Calls each(c) for the number of every target: side by side if they are many, since each starts threads of its own.
  template <class Each>
  void for_each_target(const SeriesColumns& columns, const Each& each) {
    constexpr std::size_t many = 16;
    const int threads = columns.targets.size() < many ? 1 : std::exchange(threads_, 1);
    side_by_side(threads, columns.targets.size(), [&](std::size_t c) {
      each(c);
      work_.count();
    });
  }

  /// `season`: 0 if it is to be found.
  training::LinearPlan choose(std::size_t position, bool logarithm, Index season) const {
    const FittedColumn fitted = fit_series_column(series_, table_, position, part_, logarithm);
    const auto values = normal_values(position, fitted, logarithm);
    const auto z = training::spans_of(values);
    const training::RawValue raw = raw_values(position, fitted, logarithm);
    training::LinearChoice without = choose(z, season, raw, zero_of(fitted.column, series_.groups.size()));
    if (known_values_.empty() || !options_.autoregression) return {std::move(without), std::nullopt};
    const training::EffectsChoice effects = training::choose_effects(z, known_, without.season);
    const std::vector<double> found = training::estimate_effects(z, known_, effects);
    const auto rest = training::without_effects(z, known_, found);
    const training::RawValue raw_of_rest = [&](std::size_t segment, Index row, double value) {
      return raw(segment, row, value + training::effect_on(known_[segment], row, found));
    };
    training::LinearChoice with = choose(training::spans_of(rest), season, raw_of_rest, std::nullopt);
    const Index longest = std::max(with.season, without.season);
    without.error = training::error_with_effects(z, known_, nullptr, without, longest, raw);
    with.error = training::error_with_effects(z, known_, &effects, with, longest, raw);
    if (!(with.error < without.error)) return {std::move(without), std::nullopt};
    return {std::move(with), effects};
  }

  /// Logarithms are taken where they forecast clearly better: they cost a forecast that is off upwards dearly. With a
  /// season that is because its swings grow with the values, and will be so later; without one because growth was
  /// exponential, which seldom lasts.
  std::pair<training::LinearPlan, bool> choose(std::size_t position, Transform transform) const {
    const bool possible = is_positive(position);
    if (transform == Transform::logarithm) {
      if (!possible) {
        fail(ErrorCode::bad_input, "{}: column {} has values that are not positive, and so have no logarithm",
             table_.header().source(), in_quotes(table_.header().names()[position]));
      }
      return {choose(position, true, options_.season), true};
    }
    training::LinearPlan plain = choose(position, false, options_.season);
    if (transform == Transform::none || !options_.autoregression || !possible) return {std::move(plain), false};
    training::LinearPlan logarithm = choose(position, true, options_.season);
    const bool seasonal = logarithm.choice.season > 1 && plain.choice.season > 1;
    if (!(logarithm.choice.error < (seasonal ? clearly : by_far) * plain.choice.error))
      return {std::move(plain), false};
    return {std::move(logarithm), true};
  }

 private:
  static constexpr double clearly = 0.95;  // of the mean square error: so much less is no chance
  static constexpr double by_far = 0.5;

  /// Chooses a linear forecast of series that are scaled alike.
  training::LinearChoice choose(training::ManySeries z, Index season, const training::RawValue& raw,
                                std::optional<double> zero) const {
    const auto found =
        season > 0 ? training::ChosenSeason{.rows = season} : training::choose_season(z, options_.horizon, threads_);
    if (!options_.autoregression) return {.horizon = options_.horizon, .season = found.rows, .error = 0.0, .parts = {}};
    auto choice = training::choose_linear_forecast(z, options_.horizon, found.rows, found.rows, raw, threads_, zero);
    if (found.plain) return choice;
    // Swings that come and go look like a season too: one that is will forecast.
    auto without = training::choose_linear_forecast(z, options_.horizon, 1, found.rows, raw, threads_, zero);
    return choice.error < found.most_error * without.error ? std::move(choice) : std::move(without);
  }

  /// The values of a column, segment by segment, scaled.
  std::vector<std::vector<double>> normal_values(std::size_t position, const FittedColumn& fitted,
                                                 bool logarithm) const {
    std::vector<std::vector<double>> values = values_of(series_, position, part_, logarithm);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Scaling scaling = scaling_of(fitted, series_.segments[i]);
      for (double& value : values[i]) value = (value - scaling.mean) / scaling.scale;
    }
    return values;
  }

  bool is_positive(std::size_t position) const {
    return std::ranges::all_of(series_.values.columns[position], [](double value) { return value > 0.0; });
  }

  /// Errors count in the values' own unit; those of groups in units of the group, whose sizes may differ by much.
  training::RawValue raw_values(std::size_t position, const FittedColumn& fitted, bool logarithm) const {
    struct Unit {
      Scaling scaling;
      double unit;
    };
    std::vector<Unit> units;
    const FittedColumn plain = logarithm ? fit_series_column(series_, table_, position, part_, false) : fitted;
    for (const Segment& segment : series_.segments) {
      units.push_back({scaling_of(fitted, segment), segment.group < 0 ? 1.0 : scaling_of(plain, segment).scale});
    }
    return [units = std::move(units), logarithm](std::size_t series, Index, double z) {
      const auto& [scaling, unit] = units[series];
      const double value = z * scaling.scale + scaling.mean;
      return (logarithm ? std::exp(value) : value) / unit;
    };
  }

  const OpenTable& table_;
  const SeriesTable& series_;
  SeriesPart part_;
  const SeriesOptions& options_;
  int threads_ = resolve_threads(options_.threads);  // of each choice
  Work work_;
  std::vector<std::vector<std::vector<double>>> known_values_;  // [columns known in advance][segments][rows]
  std::vector<training::Covariates> known_;                     // the same, of each segment
};

/// A category is 0 or 1 in all series: in one that shows it always, it says which series this is.
FittedColumn unscaled(const TableHeader::Category& category, const OpenTable& table, const SeriesTable& series) {
  const std::string& name = table.header().names()[category.column];
  return {.column = {.name = name, .feature = Feature::category, .category = category.text},
          .groups = std::vector<Scaling>(series.groups.size())};
}

}  // namespace

std::vector<std::vector<double>> values_of(const SeriesTable& series, std::size_t position, SeriesPart part,
                                           bool logarithm) {
  std::vector<std::vector<double>> all;
  for (const Segment& segment : series.segments) {
    const auto begin = series.values.columns[position].begin();
    auto& values = all.emplace_back(begin + segment.first,
                                    begin + (part == SeriesPart::training ? segment.training_end : segment.end));
    for (double& value : values) value = logarithm ? std::log(value) : value;
  }
  return all;
}

std::optional<double> zero_of(const Column& column, std::size_t groups) {
  if (column.logarithm || groups > 0) return std::nullopt;
  return column.normal(0.0);
}

bool ends_at_zero(const SeriesTable& series, std::size_t position) {
  constexpr double near = 0.05, least_share = 0.01, least = 3.0;
  struct Total {
    double sum = 0.0, count = 0.0;
  };
  std::vector<Total> totals(std::max<std::size_t>(series.groups.size(), 1));
  const auto total_of = [&](const Segment& segment) -> Total& { return totals[std::max<Index>(segment.group, 0)]; };
  const auto values_of_segment = [&](const Segment& segment) {
    return std::span(series.values.columns[position]).subspan(segment.first, segment.end - segment.first);
  };
  for (const Segment& segment : series.segments) {
    for (const double value : values_of_segment(segment)) {
      if (value < 0.0) return false;
      total_of(segment).sum += value;
      ++total_of(segment).count;
    }
  }
  double near_zero = 0.0, count = 0.0;
  for (const Segment& segment : series.segments) {
    const Total& total = total_of(segment);
    for (const double value : values_of_segment(segment))
      near_zero += value * total.count <= near * total.sum ? 1.0 : 0.0;
    count += static_cast<double>(segment.rows());
  }
  return near_zero >= std::max(least, least_share * count);
}

FittedColumn fit_series_column(const SeriesTable& series, const OpenTable& table, std::size_t position, SeriesPart part,
                               bool logarithm) {
  if (const auto* const category = table.header().category(position)) return unscaled(*category, table, series);
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
      const Column column = values.empty() ? Column() : fit_column(name, values, table.header().source());
      result.groups.push_back({column.mean, column.scale});
    }
  }
  result.column.logarithm = logarithm;
  return result;
}

SeriesPlan plan_series(const OpenTable& table, const SeriesTable& series, const SeriesOptions& options,
                       const SeriesColumns& columns, const DataDescription* origin) {
  const std::vector<std::size_t>& targets = columns.targets;
  SeriesPlanner planner(table, series, columns, SeriesPart::training, options);
  const auto transform_of = [&](std::size_t position) {
    const std::string& name = table.header().names()[position];
    const bool logarithm = origin != nullptr && std::ranges::any_of(origin->inputs, [&](const Column& input) {
                             return input.logarithm && input.name == name;
                           });
    return logarithm ? Transform::logarithm : options.transform;
  };
  SeriesPlan result;
  result.logarithms.assign(series.values.columns.size(), false);
  if (options.autoregression) result.linear.resize(targets.size());
  std::vector<std::optional<std::pair<training::LinearPlan, bool>>> chosen(targets.size());
  const auto is_input = [&](std::size_t target) {
    return std::ranges::find(columns.inputs, target) != columns.inputs.end();
  };
  const auto first = std::ranges::find_if(targets, is_input);
  const auto choose = [&](std::size_t c) {
    if (!is_input(targets[c])) return;
    // Without linear forecasts only the season is chosen, and the first target decides it.
    if (!options.autoregression && options.transform != Transform::logarithm && targets[c] != *first) return;
    chosen[c] = planner.choose(targets[c], transform_of(targets[c]));
  };
  planner.for_each_target(columns, choose);
  for (std::size_t c = 0; c < targets.size(); ++c) {
    if (!chosen[c]) continue;
    auto& [plan, logarithm] = *chosen[c];
    result.logarithms[targets[c]] = logarithm;
    if (result.season == 0) result.season = plan.choice.season;
    if (options.autoregression) result.linear[c] = std::move(plan);
  }
  return result;
}

training::LinearPlans plan_again(const SeriesPlan& first, const OpenTable& table, const SeriesTable& series,
                                 const SeriesOptions& options, const SeriesColumns& columns, SeriesPart part,
                                 std::optional<Index> season) {
  SeriesPlanner planner(table, series, columns, part, options);
  training::LinearPlans result = first.linear;
  planner.for_each_target(columns, [&](std::size_t c) {
    if (!result[c]) return;
    const std::size_t position = columns.targets[c];
    result[c] = planner.choose(position, first.logarithms[position], season.value_or(first.linear[c]->choice.season));
  });
  return result;
}

}  // namespace penstock::data
