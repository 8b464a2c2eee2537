#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "base/names.h"
#include "nn/model/with_scaling.h"
#include "penstock/data_description.h"

// Models, streams and datasets all ask for these sizes.
namespace penstock {

namespace {

constexpr Names<10> feature_names = {"value",     "missing",     "category",  "day_sine",    "day_cosine",
                                     "week_sine", "week_cosine", "year_sine", "year_cosine", "elapsed"};
constexpr Names<7> date_form_names = {"month-first", "day-first", "excel", "year", "digits", "seconds", "milliseconds"};
constexpr Names<2> undated_names = {"refuse", "drop"};
constexpr Names<5> irregular_names = {"auto", "ignore", "elapsed", "fill", "refuse"};
constexpr Names<4> missing_names = {"refuse", "carry", "interpolate", "mask"};
constexpr Names<3> names_of_tasks = {"language", "forecast", "classify"};

/// Which part of its cycle has passed at a date, from 0 to 1.
double phase(Feature feature, double seconds) {
  namespace chrono = std::chrono;
  constexpr double day = 86400.0, week = 7.0 * day, monday = 4.0 * day;  // the first of 1970 was a Thursday
  const auto within = [](double value, double cycle) { return value / cycle - std::floor(value / cycle); };
  if (feature == Feature::day_sine || feature == Feature::day_cosine) return within(seconds, day);
  if (feature == Feature::week_sine || feature == Feature::week_cosine) return within(seconds - monday, week);
  const chrono::sys_days date{chrono::days{static_cast<int>(std::floor(seconds / day))}};
  const chrono::year of_date = chrono::year_month_day{date}.year();
  const chrono::sys_days first{of_date / chrono::January / 1}, next{(of_date + chrono::years{1}) / chrono::January / 1};
  const double passed = seconds - static_cast<double>(first.time_since_epoch().count()) * day;
  return passed / (static_cast<double>((next - first).count()) * day);
}

double feature_of(Feature feature, double value) {
  if (feature == Feature::missing) return std::isnan(value) ? 1.0 : 0.0;
  if (feature == Feature::category) return value;
  if (feature == Feature::elapsed) return std::log2(1.0 + value) - 1.0;
  constexpr double farthest = 1e14;  // seconds: three million years, within what dates can count
  if (!(std::abs(value) < farthest)) return std::numeric_limits<double>::quiet_NaN();
  const double angle = 2.0 * std::numbers::pi * phase(feature, value);
  const bool sine = feature == Feature::day_sine || feature == Feature::week_sine || feature == Feature::year_sine;
  return sine ? std::sin(angle) : std::cos(angle);
}

}  // namespace

std::string_view to_string(Feature feature) { return name_of(feature_names, feature); }
Feature parse_feature(std::string_view text) { return parse_name<Feature>("feature", feature_names, text); }
std::string_view to_string(DateForm form) { return name_of(date_form_names, form); }
std::string_view to_string(Undated undated) { return name_of(undated_names, undated); }
Undated parse_undated(std::string_view text) { return parse_name<Undated>("undated", undated_names, text); }
std::string_view to_string(Missing missing) { return name_of(missing_names, missing); }
Missing parse_missing(std::string_view text) { return parse_name<Missing>("missing", missing_names, text); }
std::string_view to_string(Task task) { return name_of(names_of_tasks, task); }
std::string_view to_string(Irregular irregular) { return name_of(irregular_names, irregular); }
Irregular parse_irregular(std::string_view text) { return parse_name<Irregular>("irregular", irregular_names, text); }
DateForm parse_date_form(std::string_view text) { return parse_name<DateForm>("dates", date_form_names, text); }

std::string Column::title() const {
  std::string read = feature == Feature::category ? fmt::format("{} = {}", name, category) : name;
  if (ahead > 0) return fmt::format("{} (+{})", read, ahead);
  if (feature == Feature::category) return read;
  return feature == Feature::value ? name : fmt::format("{} ({})", name, to_string(feature));
}

double Column::normal(double value) const {
  if (feature != Feature::value) value = feature_of(feature, value);
  return ((logarithm ? std::log(value) : value) - mean) / scale;
}

bool Column::can_read(double value) const { return std::abs(normal(value)) <= furthest; }

double Column::raw(double normalised) const {
  const double value = normalised * scale + mean;
  return logarithm ? std::exp(value) : value;
}

void Spread::check(std::span<const double> quantile_levels) const {
  require(!empty(), "quantiles: the model does not know the errors of its forecasts: train it with held-out rows");
  for (const double level : quantile_levels) {
    if (level >= levels.front() && level <= levels.back()) continue;
    const bool percent = level > 1.0 && level <= 100.0;
    fail(ErrorCode::invalid_argument, "quantiles must be {:g} to {:g}, not {:g}{}", levels.front(), levels.back(),
         level, percent ? fmt::format(": {:g} % is {:g}", level, level / 100.0) : "");
  }
}

double Spread::error(double level, Index output) const {
  require(!empty(), "the spread of these forecasts is not known");
  require(level >= levels.front() && level <= levels.back(), "level must be {} to {}, not {}", levels.front(),
          levels.back(), level);
  const std::size_t targets = quantiles.size() / levels.size();
  const std::size_t target = static_cast<std::size_t>(output) % targets;
  const auto next = static_cast<std::size_t>(std::ranges::lower_bound(levels, level) - levels.begin());
  const double above = quantiles[next * targets + target];
  if (levels[next] == level) return above * scales[static_cast<std::size_t>(output)];
  const double below = quantiles[(next - 1) * targets + target];
  const double share = (level - levels[next - 1]) / (levels[next] - levels[next - 1]);
  return (below + share * (above - below)) * scales[static_cast<std::size_t>(output)];
}

double Spread::quantile(double level, Index output, const Column& column, double normalised) const {
  const double e = error(level, output), raw = column.raw(normalised);
  if (relative[static_cast<std::size_t>(output) % relative.size()] == 0) return column.raw(normalised + e);
  return raw > 0.0 ? raw * std::exp(e) : raw;
}

double Spread::error_between(double value, double forecast, std::size_t target, const Column& column) const {
  if (relative[target] == 0) return column.normal(value) - forecast;
  const double raw_forecast = column.raw(forecast);
  return value > 0.0 && raw_forecast > 0.0 ? std::log(value / raw_forecast) : std::numeric_limits<double>::quiet_NaN();
}

Index DataDescription::output_size() const {
  switch (task) {
    case Task::language:
      return vocabulary;
    case Task::forecast:
      return horizon * static_cast<Index>(targets.size());
    case Task::classify:
      break;
  }
  return static_cast<Index>(classes.size());
}

DataDescription DataDescription::of_group(const Group& group) const { return GroupDescriptions(*this).of(group); }

GroupDescriptions::GroupDescriptions(const DataDescription& data) : of_any_(data) {
  of_any_.group_column.clear();
  of_any_.groups_are_files = false;
  of_any_.groups = {};
  for (Spread::Ending& ending : std::exchange(of_any_.spread.endings, {})) {
    endings_[ending.group].push_back(std::move(ending));
  }
}

DataDescription GroupDescriptions::of(const Group& group) const {
  DataDescription result = of_any_;
  result.inputs = with_scalings(std::move(result.inputs), group.inputs);
  result.targets = with_scalings(std::move(result.targets), group.targets);
  const auto endings = endings_.find(group.name);
  if (endings != endings_.end()) result.spread.endings = endings->second;
  return result;
}

std::optional<std::size_t> DataDescription::input_of(std::string_view column) const {
  const auto found = std::ranges::find_if(inputs, [&](const Column& input) {
    return input.feature == Feature::value && input.ahead == 0 && input.name == column;
  });
  if (found == inputs.end()) return std::nullopt;
  return static_cast<std::size_t>(found - inputs.begin());
}

std::size_t DataDescription::now_of(const Column& later) const {
  const auto now =
      std::ranges::find_if(inputs, [&](const Column& input) { return input.ahead == 0 && input.reads_same(later); });
  require(now != inputs.end(), "inputs: {} is read ahead, but not as it is", in_quotes(later.name));
  return static_cast<std::size_t>(now - inputs.begin());
}

bool DataDescription::labels_sequences() const { return task == Task::classify && vocabulary == 0; }

bool DataDescription::forecasts_an_input() const {
  return task == Task::forecast &&
         std::ranges::any_of(targets, [&](const Column& target) { return input_of(target.name).has_value(); });
}

bool DataDescription::reads_ahead() const {
  return std::ranges::any_of(inputs, [](const Column& input) { return input.ahead > 0; });
}

std::vector<std::string> DataDescription::known_columns() const {
  std::vector<std::string> names;
  for (const Column& input : inputs) {
    if (input.ahead == 1 && std::ranges::find(names, input.name) == names.end()) names.push_back(input.name);
  }
  return names;
}

bool DataDescription::is_known_ahead(std::string_view column) const {
  return std::ranges::any_of(inputs, [&](const Column& input) { return input.ahead > 0 && input.name == column; });
}

void fill_ahead(const DataDescription& data, std::span<float> features) {
  const std::size_t width = data.inputs.size(), rows = features.size() / std::max<std::size_t>(width, 1);
  for (std::size_t to = 0; to < width; ++to) {
    const Column& input = data.inputs[to];
    if (input.ahead == 0) continue;
    const std::size_t from = data.now_of(input);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t later = std::min(row + static_cast<std::size_t>(input.ahead), rows - 1);
      features[row * width + to] = features[later * width + from];
    }
  }
}

Index DataDescription::input_size() const { return vocabulary > 0 ? 1 : static_cast<Index>(inputs.size()); }

}  // namespace penstock
