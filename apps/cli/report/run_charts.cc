#include "report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "answers/forecast_dates.h"
#include "report/date_texts.h"
#include "terminal/units.h"

namespace penstock::cli::reporting {
namespace {

bool is_text(const Run& run) { return text_of(run.about, "task") == "language"; }

double shown_loss_of(const Run& run, double loss) { return is_text(run) ? loss / std::numbers::ln2 : loss; }

bool is_known(double value) { return std::isfinite(value); }

/// A unit of time in which a run can be read off an axis.
struct TimeUnit {
  const char* name = "seconds";
  double seconds = 1.0;
};
TimeUnit time_unit(const std::vector<Run>& runs) {
  double longest = 0.0;
  for (const Run& run : runs) {
    for (const Measurement& each : run.measurements)
      longest = std::max(longest, is_known(each.seconds) ? each.seconds : 0.0);
  }
  if (longest > 3.0 * 3600.0) return {"hours", 3600.0};
  return longest > 300.0 ? TimeUnit{"minutes", 60.0} : TimeUnit{};
}

/// Adds a line with anything to draw.
void add_line(Chart& chart, Line line) {
  if (std::ranges::any_of(line.y, is_known)) chart.lines.push_back(std::move(line));
}

/// Returns the ratio of the largest number to the smallest one above zero.
double ratio_of(const Chart& chart) {
  double least = std::numeric_limits<double>::infinity(), greatest = 0.0;
  for (const Line& line : chart.lines) {
    for (const double value : line.y) {
      if (!is_known(value)) continue;
      if (value <= 0.0) return 0.0;
      least = std::min(least, value);
      greatest = std::max(greatest, value);
    }
  }
  return greatest > 0.0 ? greatest / least : 0.0;
}

/// Runs whose losses are the same kind of number.
std::vector<std::string> loss_names(const std::vector<Run>& runs) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    if (std::ranges::find(names, loss_name(run)) == names.end()) names.push_back(loss_name(run));
  }
  return names;
}

/// Returns the meaning of a loss of 1, if it is the same in all runs.
std::string loss_note(const std::vector<Run>& runs, const std::string& name) {
  const bool from_last = name == "mse" && std::ranges::all_of(runs, [&](const Run& run) {
                           const Json architecture = run.about.value("architecture", Json::object());
                           return loss_name(run) != name || architecture.value("from_last", Json(false)) == true;
                         });
  return from_last ? "1 is the error of forecasting the last value." : "";
}

Chart loss_chart(const std::vector<Run>& runs, const std::string& name, const TimeUnit* unit) {
  Chart chart;
  chart.title = fmt::format("Loss over {}", unit != nullptr ? "time" : "steps");
  chart.id = fmt::format("loss-{}{}", unit != nullptr ? "time" : "steps",
                         loss_names(runs).size() > 1 ? "-" + name.substr(0, name.find(' ')) : "");
  chart.x_name = unit != nullptr ? unit->name : "steps";
  chart.y_name = name;
  chart.note = loss_note(runs, name);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (loss_name(run) != name) continue;
    const auto place = [&](const auto& each) { return unit != nullptr ? each.seconds / unit->seconds : each.step; };
    Line training{.name = run.name + ", training", .colour = i, .style = Line::Style::faint};
    for (const Measurement& each : run.measurements) {
      training.x.push_back(place(each));
      training.y.push_back(shown_loss_of(run, each.loss));
    }
    Line held_out{.name = run.name + ", held out", .colour = i};
    for (const Validation& each : run.validations) {
      held_out.x.push_back(place(each));
      held_out.y.push_back(shown_loss_of(run, each.loss));
    }
    add_line(chart, std::move(training));
    add_line(chart, std::move(held_out));
  }
  chart.logarithmic = ratio_of(chart) > 30.0;
  return chart;
}

Chart accuracy_chart(const std::vector<Run>& runs) {
  Chart chart{.id = "accuracy", .title = "Accuracy", .note = "On the hold-out set.", .x_name = "steps", .y_name = "%"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Line line{.name = runs[i].name, .colour = i};
    for (const Validation& each : runs[i].validations) {
      line.x.push_back(each.step);
      line.y.push_back(100.0 * each.accuracy);
    }
    add_line(chart, std::move(line));
  }
  return chart;
}

Chart step_chart(const std::vector<Run>& runs, const char* id, const char* title, const char* unit, const char* note,
                 double (*get)(const Measurement&)) {
  Chart chart{.id = id, .title = title, .note = note, .x_name = "steps", .y_name = unit};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Line line{.name = runs[i].name, .colour = i};
    for (const Measurement& each : runs[i].measurements) {
      if (!is_known(each.step)) continue;
      line.x.push_back(each.step);
      line.y.push_back(get(each));
    }
    add_line(chart, std::move(line));
  }
  return chart;
}

bool has_nonzero(const Chart& chart) {
  return std::ranges::any_of(chart.lines, [](const Line& line) {
    return std::ranges::any_of(line.y, [](double value) { return is_known(value) && value != 0.0; });
  });
}

/// Numbers of a JSON list; null is a gap.
std::vector<double> numbers(const Json& list) {
  std::vector<double> all;
  for (const Json& each : list) {
    all.push_back(each.is_number() ? each.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  return all;
}

std::vector<double> counting_from(double first, std::size_t count) {
  std::vector<double> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = first + static_cast<double>(i);
  return all;
}

/// Between the outermost quantiles that were forecast: a field of the record.
void add_band(Chart& chart, const Json& record, const char* field, const std::vector<double>& rows) {
  const Json quantiles = record.value(field, Json::object());
  if (quantiles.size() < 2) return;
  std::vector<std::pair<double, std::string>> names;
  for (const auto& [name, list] : quantiles.items()) names.emplace_back(std::strtod(name.c_str(), nullptr), name);
  std::ranges::sort(names);
  const std::string name =
      fmt::format("{:g} to {:g} % quantile", 100.0 * names.front().first, 100.0 * names.back().first);
  const bool is_said = std::ranges::any_of(chart.bands, [&](const Band& band) { return band.name == name; });
  chart.bands.push_back({.name = is_said ? "" : name,
                         .colour = 1,
                         .x = rows,
                         .low = numbers(quantiles[names.front().second]),
                         .high = numbers(quantiles[names.back().second])});
}

/// Labels rows by their dates instead of their numbers, if all dates are known.
void add_dates(Chart& chart, const Json& record, double first_row, std::size_t to_come) {
  const std::vector<double> dates = without_gaps(numbers(record.value("dates", Json::array())));
  const auto is_sound = [&](double date) { return date >= earliest_date && date <= latest_date; };
  if (dates.size() < 2 || dates.size() != record["truth"].size() || !std::ranges::all_of(dates, is_sound)) return;
  const std::vector<double> later = dates_to_come(dates, to_come);
  if (later.size() != to_come) return;
  chart.x_name = "";
  chart.first_row = first_row;
  chart.dates = dates;
  chart.dates.insert(chart.dates.end(), later.begin(), later.end());
}

/// Why there is no forecast behind the last row.
std::string lacking_note(const Json& record) {
  const Json lacking = record.value("lacking", Json::object());
  const double rows = number_of(lacking, "rows");
  if (!(rows > 0.0)) return "";
  std::string columns;
  for (const Json& name : lacking.value("columns", Json::array())) {
    if (name.is_string()) columns += (columns.empty() ? "" : ", ") + printable(name.get<std::string>());
  }
  return fmt::format("No forecast from the last row{}: it needs {} of {} more row{}, which the data do not have.",
                     rows == 1.0 ? "" : "s", columns, whole_number(rows), rows == 1.0 ? "" : "s");
}

Chart forecast_chart(const Json& record, const std::string& id) {
  const std::string column = text_of(record, "column"), group = text_of(record, "group");
  Chart chart{.id = id,
              .title = printable(group.empty() ? column : fmt::format("{} of {}", column, group)),
              .note = lacking_note(record),
              .x_name = "row",
              .wide = true};
  const std::vector<double> truth = numbers(record["truth"]);
  const double first = std::max(1.0, number_of(record, "first_row"));
  const std::vector<double> rows = counting_from(first, truth.size());
  const std::vector<double> to_come = numbers(record.value("to_come", Json::array()));
  add_dates(chart, record, first, to_come.size());
  add_band(chart, record, "quantiles", rows);
  if (!rows.empty()) add_band(chart, record, "to_come_quantiles", counting_from(rows.back() + 1.0, to_come.size()));
  std::size_t colour = 0;
  const Json forecasts = record.value("ahead", Json::object());
  for (const auto& [ahead, list] : forecasts.items()) {
    add_line(chart, {.name = fmt::format("forecast {} row{} ahead", ahead, ahead == "1" ? "" : "s"),
                     .colour = colour++,
                     .x = rows,
                     .y = numbers(list)});
  }
  if (!to_come.empty() && !truth.empty()) {
    Line line{.name = "to come",
              .colour = colour > 1 ? std::size_t{1} : std::size_t{0},
              .style = Line::Style::dashed,
              .x = counting_from(rows.back(), to_come.size() + 1),
              .y = {truth.back()}};
    line.y.insert(line.y.end(), to_come.begin(), to_come.end());
    chart.lines.push_back(std::move(line));
  }
  chart.lines.push_back({.name = "actual values", .colour = 0, .style = Line::Style::neutral, .x = rows, .y = truth});
  return chart;
}

}  // namespace

std::string loss_name(const Run& run) {
  if (is_text(run)) return text_of(run.about, "unit") == "tokens" ? "bits per token" : "bits per byte";
  const std::string name = text_of(run.about, "loss_name");
  return name.empty() || name == "loss" ? "cross-entropy" : name;
}

std::vector<Chart> training_charts(const std::vector<Run>& runs) {
  std::vector<Chart> charts;
  const TimeUnit unit = time_unit(runs);
  for (const std::string& name : loss_names(runs)) {
    charts.push_back(loss_chart(runs, name, nullptr));
    charts.push_back(loss_chart(runs, name, &unit));
  }
  charts.push_back(accuracy_chart(runs));
  charts.push_back(step_chart(runs, "gradient-norm", "Gradient norm", "", "Before clipping.",
                              [](const Measurement& each) { return each.gradient_norm; }));
  charts.back().logarithmic = ratio_of(charts.back()) > 30.0;
  charts.push_back(step_chart(runs, "learning-rate", "Learning rate", "", "",
                              [](const Measurement& each) { return each.learning_rate; }));
  charts.push_back(step_chart(runs, "throughput", "Throughput", "positions per second",
                              "A position is a byte, a row or a sample of one sequence.",
                              [](const Measurement& each) { return each.rate; }));
  Chart skipped =
      step_chart(runs, "skipped", "Skipped steps", "steps so far", "Steps skipped because a value was not finite.",
                 [](const Measurement& each) { return each.skipped; });
  if (has_nonzero(skipped)) charts.push_back(std::move(skipped));
  Chart saturated = step_chart(runs, "saturated", "Saturated outputs", "%",
                               "Share of recurrent outputs beyond 0.99, where little gradient passes.",
                               [](const Measurement& each) { return 100.0 * each.saturated; });
  if (has_nonzero(saturated)) charts.push_back(std::move(saturated));
  std::erase_if(charts, [](const Chart& chart) { return chart.empty(); });
  return charts;
}

std::vector<Chart> forecast_charts(const Run& run) {
  constexpr std::size_t most = 8;
  std::vector<Chart> charts;
  for (const Json& record : run.forecasts) {
    if (charts.size() == most) break;
    charts.push_back(forecast_chart(record, fmt::format("forecast-{}-{}", run.name, charts.size() + 1)));
  }
  return charts;
}

}  // namespace penstock::cli::reporting
