#include "answers/long_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "answers/forecast_dates.h"
#include "answers/step_answers.h"
#include "answers/written_values.h"
#include "penstock/error.h"
#include "penstock/interval_tracker.h"
#include "terminal/describe.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// How rows follow each other in time; models from before that was kept know the column of dates by what they read.
RowDates usual_dates(const DataDescription& data) {
  RowDates dates = data.series.row_dates;
  const auto input = std::ranges::find_if(data.inputs, &Column::reads_dates);
  if (!dates.column.empty() || input == data.inputs.end()) return dates;
  dates.column = input->name;
  dates.form = input->dates;
  return dates;
}

/// The dates of a series' rows, and of as many behind them as are forecast; empty where its first or last row has none.
std::vector<double> dates_of(const GroupedRows& series, const RowDates& usual, Index horizon) {
  std::vector<double> dates;
  for (const auto& date : series.dates) dates.push_back(date.value_or(std::numeric_limits<double>::quiet_NaN()));
  for (const auto& date : series.dates_to_come) {
    if (date) dates.push_back(*date);  // those behind the last known one follow it
  }
  dates = reporting::without_gaps(std::move(dates));
  if (dates.size() == 1 && usual.step == 0.0) return {};  // nothing says how far apart rows are
  const std::size_t needed = series.dates.size() + static_cast<std::size_t>(horizon);
  if (dates.empty() || dates.size() >= needed) return dates;
  const std::vector<double> later = reporting::dates_to_come(dates, needed - dates.size(), &usual);
  dates.insert(dates.end(), later.begin(), later.end());
  return dates;
}

}  // namespace

RowTimes::RowTimes(const Rows& rows, const std::vector<GroupedRows>& groups, const DataDescription& data) {
  const RowDates usual = usual_dates(data);
  if (usual.column.empty()) return;
  name_ = usual.column;
  if (!rows.reader().column(name_)) {
    fail(ErrorCode::bad_input, "{}: the header has no column '{}', from which --long takes the dates of the forecasts",
         printable(rows.name()), printable(name_));
  }
  std::vector<double> all;
  for (const GroupedRows& series : groups) {
    dates_.push_back(dates_of(series, usual, data.series.horizon));
    if (dates_.back().empty()) {
      fail(ErrorCode::bad_input,
           "{}: --long needs two rows or more{}{}, of which the first and the last have a date in column '{}'",
           printable(rows.name()), series.name.empty() ? "" : " of ", printable(series.name), printable(name_));
    }
    if (dates_.back().size() < series.dates.size() + static_cast<std::size_t>(data.series.horizon)) {
      fail(ErrorCode::bad_input,
           "{}: the dates of the forecasts lie too far in the future for --long to write them: look at the last dates "
           "in column '{}'",
           printable(rows.name()), printable(name_));
    }
    all.insert(all.end(), dates_.back().begin(), dates_.back().end());
  }
  writer_.emplace(all, usual.form, rows.reader().findings().zoned);
}

std::string RowTimes::text(std::size_t series, Index row) const {
  if (!writer_) return fmt::format("{}", row + 1);
  return writer_->text(dates_[series][static_cast<std::size_t>(row)]);
}

LongAnswers::LongAnswers(Output& output, const DataDescription& data, LongOptions options, RowTimes times)
    : output_(output), data_(data), options_(std::move(options)), times_(std::move(times)) {
  if (options_.origins) key_names_.emplace_back("origin");
  key_names_.push_back(times_.name());
  if (!data_.series.group_column.empty()) key_names_.push_back(data_.series.group_column);
  key_names_.emplace_back("column");
}

void LongAnswers::header() {
  if (options_.json) return;
  std::vector<std::string> names = options_.keep;
  names.insert(names.end(), key_names_.begin(), key_names_.end());
  names.emplace_back("forecast");
  for (const double level : options_.quantiles) names.push_back(fmt::format("q{:g}", level));
  output_.write(csv_row(names, data_.table.delimiter));
}

std::vector<std::string> LongAnswers::keys(std::size_t series, Index row, Index step, const GroupedRows& of) const {
  std::vector<std::string> values;
  if (options_.origins) values.push_back(times_.text(series, row));
  values.push_back(times_.text(series, row + step));
  if (!data_.series.group_column.empty()) values.push_back(of.name);
  return values;
}

void LongAnswers::answer(std::size_t series, Index row, const GroupedRows& of, const ErrorDistribution& distribution,
                         std::span<const float> forecasts) {
  require_finite(forecasts);
  const std::vector<std::string>& kept = of.kept[static_cast<std::size_t>(row)];
  for (std::size_t output = 0; output < forecasts.size(); ++output) {
    const std::size_t targets = data_.targets.size();
    std::vector<std::string> values = keys(series, row, static_cast<Index>(output / targets) + 1, of);
    const Column& column = of.data.targets[output % targets];
    values.push_back(column.name);
    const double forecast = raw_forecast(of.data, distribution, forecasts, output);
    const auto quantile = [&](double level) { return raw_forecast(of.data, distribution, forecasts, output, level); };
    if (options_.json) {
      Json line = Json::object();
      for (std::size_t i = 0; i < kept.size(); ++i) line["columns"][options_.keep[i]] = kept[i];
      for (std::size_t i = 0; i < values.size(); ++i) line[key_names_[i]] = values[i];
      line["forecast"] = forecast;
      for (const double level : options_.quantiles) line["quantiles"][fmt::format("{:g}", level)] = quantile(level);
      output_.write(json_line(line));
      continue;
    }
    values.insert(values.begin(), kept.begin(), kept.end());
    values.push_back(number_text(forecast, column));
    for (const double level : options_.quantiles) values.push_back(number_text(quantile(level), column));
    output_.write(csv_row(values, data_.table.delimiter));
  }
}

}  // namespace penstock::cli
