#include "data/model_to_continue.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/data/row_steps.h"

namespace penstock::data {

namespace {

const char* describe_use(const DataDescription& data) {
  if (data.sample_rate > 0) return "sound";
  switch (data.task) {
    case Task::language:
      return "texts";
    case Task::forecast:
      return "series";
    case Task::classify:
      break;
  }
  if (data.labels_texts()) return "labelled texts";
  return data.vocabulary > 0 ? "tokens" : "labelled sequences";
}

/// Values that grow may leave what was seen before by many times its spread; other units are beyond that.
void check_unit(const Column& fitted, const Column& origin, const std::string& source) {
  constexpr double most_spreads = 30.0, largest_ratio = 100.0;
  const double ratio = fitted.scale / origin.scale;
  const double distance = std::abs(fitted.mean - origin.mean) / std::max(fitted.scale, origin.scale);
  if (ratio <= largest_ratio && ratio >= 1.0 / largest_ratio && distance <= most_spreads) return;
  const char* const logarithms = origin.logarithm ? " of logarithms" : "";
  fail(ErrorCode::incompatible,
       "{}: column {} has mean {:.4g} and spread {:.4g}{}, the data of the model had {:.4g} and {:.4g}: it must be in "
       "the same unit",
       source, in_quotes(fitted.name), fitted.mean, fitted.scale, logarithms, origin.mean, origin.scale);
}

}  // namespace

void check_origin_use(const DataDescription& origin, std::string_view use, const std::string& source) {
  const std::string_view of_origin = describe_use(origin);
  if (of_origin != use) fail(ErrorCode::incompatible, "{}: the model is for {}, not for {}", source, of_origin, use);
}

void check_step(const RowDates& here, const RowDates& origin, const std::string& source) {
  // Rows at irregular dates are learnt with their distances as an input.
  if (!(here.step > 0.0) || !(origin.step > 0.0) || origin.irregular == Irregular::elapsed) return;
  if (alike_steps(here.step, origin.step)) return;
  fail(ErrorCode::incompatible,
       "{}: rows are {} apart, and the model learnt rows {} apart: give it such rows, or train a new model", source,
       describe_step(here.step), describe_step(origin.step));
}

std::vector<std::string> value_names(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) {
    if (column.feature == Feature::value && column.ahead == 0) names.push_back(column.name);
  }
  return names;
}

SeriesOptions options_of(const DataDescription& origin, SeriesOptions options) {
  options.inputs = value_names(origin.inputs);
  options.targets = value_names(origin.targets);
  options.horizon = origin.series.horizon;
  options.group = origin.series.groups_are_files ? "" : origin.series.group_column;
  options.group_by_file = origin.series.groups_are_files;
  options.known = origin.known_columns();
  options.categories.clear();
  options.transform = Transform::none;  // logarithms are those of the columns
  options.calendar = {};
  options.irregular = origin.series.row_dates.irregular;
  if (options.irregular != Irregular::ignore) options.calendar.column = origin.series.row_dates.column;
  const bool fills = origin.series.row_dates.irregular == Irregular::fill;
  for (const Column& input : origin.inputs) {
    if (input.feature == Feature::missing && options.missing != Missing::mask && !fills) {
      fail(ErrorCode::incompatible, "the model reads where column {} has no value: missing must be mask, not {}",
           in_quotes(input.name), to_string(options.missing));
    }
    if (!input.reads_dates() || input.feature == Feature::elapsed) continue;
    options.calendar.read = true;
    options.calendar.column = input.name;
    if (input.feature == Feature::day_sine) options.calendar.cycles.push_back(Cycle::day);
    if (input.feature == Feature::week_sine) options.calendar.cycles.push_back(Cycle::week);
    if (input.feature == Feature::year_sine) options.calendar.cycles.push_back(Cycle::year);
  }
  return options;
}

void take_scaling(DataDescription& fitted, const DataDescription& origin, const std::string& source) {
  const auto take = [&](Column& column, const std::vector<Column>& columns, bool check) {
    const auto known = std::ranges::find_if(
        columns, [&](const Column& each) { return each.name == column.name && each.feature == Feature::value; });
    if (known == columns.end()) return;  // continue_from() compares the columns
    if (check) check_unit(column, *known, source);
    column.mean = known->mean;
    column.scale = known->scale;
  };
  for (Column& input : fitted.inputs) take(input, origin.inputs, true);
  // A series that the model knows is scaled as it was; of others their own scaling is all there is.
  for (Group& group : fitted.series.groups) {
    const auto known = std::ranges::find(origin.series.groups, group.name, &Group::name);
    if (known == origin.series.groups.end()) continue;
    std::copy_n(known->inputs.begin(), group.inputs.size(), group.inputs.begin());
    group.targets = known->targets;
  }
  // Targets that are read may be scaled by their changes, which says nothing of the unit.
  for (Column& target : fitted.targets) take(target, origin.targets, !reads(origin, target.name, Feature::value));
}

bool reads(const DataDescription& origin, const std::string& column, Feature feature) {
  return std::ranges::any_of(origin.inputs,
                             [&](const Column& input) { return input.name == column && input.feature == feature; });
}

}  // namespace penstock::data
