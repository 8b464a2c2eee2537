#include "report/outcome.h"

#include <fmt/format.h>

#include "answers/compare_series.h"
#include "penstock/error.h"
#include "penstock/log_file.h"
#include "penstock/stream.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

constexpr double low_level = 0.1, high_level = 0.9;  // of the quantiles that are shown

}  // namespace

bool ForecastTrace::knows_quantiles() const {
  const ErrorDistribution& distribution = data_.series.errors;
  return !distribution.empty() && distribution.levels.front() <= low_level && distribution.levels.back() >= high_level;
}

void ForecastTrace::add(const ErrorDistribution& distribution, std::span<const double> values,
                        std::span<const double> forecasts, std::optional<double> date, Index lacking) {
  if (lacking > 0) forecasts = {};
  lacking_ = lacking;
  const std::size_t targets = values.size();
  Row row{.values = {values.begin(), values.end()}, .next = {}, .last = {}, .low = {}, .high = {}, .date = date};
  if (!forecasts.empty()) {
    const auto next = forecasts.first(targets), last = forecasts.last(targets);
    row.next.assign(next.begin(), next.end());
    row.last.assign(last.begin(), last.end());
    if (knows_quantiles()) add_quantiles(distribution, row);
  }
  latest_.assign(forecasts.begin(), forecasts.end());
  latest_scales_ = distribution.scales;
  rows_.push_back(std::move(row));
  ++seen_;
  // Forecasts of the first row that is shown come from rows before it.
  if (rows_.size() > most_rows + static_cast<std::size_t>(data_.series.horizon)) rows_.pop_front();
}

double ForecastTrace::quantile(const ErrorDistribution& distribution, double level, std::size_t output,
                               double forecast) const {
  const Column& column = data_.targets[output % data_.targets.size()];
  return distribution.quantile(level, static_cast<Index>(output), column, column.normal(forecast));
}

void ForecastTrace::add_quantiles(const ErrorDistribution& distribution, Row& row) const {
  const std::size_t targets = row.last.size(), first = (static_cast<std::size_t>(data_.series.horizon) - 1) * targets;
  for (std::size_t target = 0; target < targets; ++target) {
    row.low.push_back(quantile(distribution, low_level, first + target, row.last[target]));
    row.high.push_back(quantile(distribution, high_level, first + target, row.last[target]));
  }
}

Json ForecastTrace::quantiles_to_come(std::size_t target, double level) const {
  ErrorDistribution distribution = data_.series.errors;
  distribution.scales = latest_scales_;
  Json values = Json::array();
  for (std::size_t i = target; i < latest_.size(); i += data_.targets.size()) {
    values.push_back(quantile(distribution, level, i, latest_[i]));
  }
  return values;
}

Json ForecastTrace::said_before(std::size_t target, Index steps, const std::vector<double> Row::*what) const {
  Json values = Json::array();
  const std::size_t shown = std::min(rows_.size(), most_rows), distance = static_cast<std::size_t>(steps);
  for (std::size_t i = rows_.size() - shown; i < rows_.size(); ++i) {
    const bool known = i >= distance && !(rows_[i - distance].*what).empty();
    if (!known) values.push_back(nullptr);
    if (known) values.push_back((rows_[i - distance].*what)[target]);
  }
  return values;
}

std::vector<Json> ForecastTrace::records() const {
  std::vector<Json> all;
  const std::size_t shown = std::min(rows_.size(), most_rows), targets = data_.targets.size();
  for (std::size_t target = 0; target < targets && shown > 0; ++target) {
    Json truth = Json::array(), to_come = Json::array(), dates = Json::array();
    for (std::size_t i = rows_.size() - shown; i < rows_.size(); ++i) {
      truth.push_back(rows_[i].values[target]);
      dates.push_back(rows_[i].date ? Json(*rows_[i].date) : Json());
    }
    for (std::size_t i = target; i < latest_.size(); i += targets) to_come.push_back(latest_[i]);
    Json forecasts = {{"1", said_before(target, 1, &Row::next)}};
    if (data_.series.horizon > 1) {
      forecasts[fmt::format("{}", data_.series.horizon)] = said_before(target, data_.series.horizon, &Row::last);
    }
    all.push_back({{"kind", "forecast"},
                   {"column", data_.targets[target].name},
                   {"first_row", seen_ - static_cast<Index>(shown) + 1},
                   {"truth", std::move(truth)},
                   {"ahead", std::move(forecasts)},
                   {"to_come", std::move(to_come)}});
    if (rows_.back().date) all.back()["dates"] = std::move(dates);
    if (lacking_ > 0) all.back()["lacking"] = {{"rows", lacking_}, {"columns", data_.known_columns()}};
    if (!knows_quantiles()) continue;
    const std::string low = fmt::format("{:g}", low_level), high = fmt::format("{:g}", high_level);
    all.back()["quantiles"] = {{low, said_before(target, data_.series.horizon, &Row::low)},
                               {high, said_before(target, data_.series.horizon, &Row::high)}};
    all.back()["to_come_quantiles"] = {{low, quantiles_to_come(target, low_level)},
                                       {high, quantiles_to_come(target, high_level)}};
  }
  return all;
}

void ForecastTraces::add(const std::string& group, const DataDescription& data, std::span<const double> values,
                         std::span<const double> forecasts, std::optional<double> date, Index lacking) {
  traces_.try_emplace(group, data).first->second.add(data.series.errors, values, forecasts, date, lacking);
}

std::vector<Json> ForecastTraces::records(const std::vector<GroupScore>& scores) const {
  if (scores.empty()) return traces_.empty() ? std::vector<Json>() : traces_.begin()->second.records();
  std::vector<Json> all;
  for (const std::size_t i : telling_groups(scores)) {
    for (Json& record : traces_.at(scores[i].group).records()) {
      record["group"] = scores[i].group;
      all.push_back(std::move(record));
    }
  }
  return all;
}

Json score_record(const Model& model, const Score& score, const std::string& data) {
  return {{"kind", "score"}, {"data", data}, {"score", score_json(model, score)}};
}

Json sample_record(const Model& model, const Execution& execution) {
  constexpr int bytes = 800;
  Generator generator(model, {}, 0, execution);
  std::string text;
  for (int i = 0; i < bytes; ++i) text += generator.next();
  return {{"kind", "sample"}, {"text", text}};
}

void append_records(const std::string& path, const std::vector<Json>& records) {
  try {
    LogFile file(path, LogFile::Begin::append, "cannot write metrics");
    for (const Json& record : records) file.write(json_line(record));
    if (!file.error().empty()) throw Error(ErrorCode::io_failure, file.error());
  } catch (const Error& error) {
    say(fmt::format("warning: {}\n", printable(error.what())));
  }
}

}  // namespace penstock::cli::reporting
