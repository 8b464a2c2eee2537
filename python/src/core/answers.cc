#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "bindings.h"
#include "dicts.h"
#include "interrupts.h"
#include "models.h"
#include "penstock/classify/labels.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/train/answer_rows.h"
#include "penstock/train/score_rows.h"

// Answers of models for files and tables in memory, and their scores.
namespace penstock::python {

namespace {

/// A path, or a table in memory.
using Source = std::variant<std::string, Table>;

Table table_from(const Source& source) {
  if (const Table* const table = std::get_if<Table>(&source)) return *table;
  const std::string& path = std::get<std::string>(source);
  return {path, unless_interrupted([&] { return read_table(path); })};
}

void warn(const std::string& text) {
  const nb::gil_scoped_acquire locked;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) throw nb::python_error();
}

/// Warns about rows that were left out or are out of order, and unknown categories. The caller does not hold the GIL.
void warn_of_findings(const Rows& rows) {
  for (const Message& text : describe(rows.reader().findings())) warn(text.text(argument_words));
}

struct SeriesForecast {
  std::string name;
  std::vector<double> values;     // [rows, horizon, targets]
  std::vector<double> quantiles;  // [rows, horizon, targets, levels]
  Index rows = 0;
};

/// Returns the forecasts from every row. They are NaN where values known in advance are missing in the rows after it.
SeriesForecast forecast(const Model& model, const GroupedRows& series, const std::vector<double>& levels,
                        const Execution& execution) {
  const DataDescription& data = series.data;
  SeriesForecast result{.name = series.name, .values = {}, .quantiles = {}};
  const auto add = [&](Index row, const ErrorDistribution& distribution, std::span<const float> own) {
    if (series.missing[static_cast<std::size_t>(row)]) return;
    const bool known = series.lacking(row) == 0;
    const auto told = [&](double value) { return known ? value : std::numeric_limits<double>::quiet_NaN(); };
    for (std::size_t i = 0; i < own.size(); ++i) {
      result.values.push_back(told(raw_forecast(data, distribution, own, i)));
      for (const double level : levels)
        result.quantiles.push_back(told(raw_forecast(data, distribution, own, i, level)));
    }
    ++result.rows;
  };
  forecast_rows(model, series, static_cast<Index>(series.kept.size()), execution, add);
  return result;
}

/// Returns (name, forecasts, quantiles) of each series. Quantiles are None without levels.
nb::list forecast_table(SharedModel& shared, const Source& source, const std::vector<double>& levels,
                        const CallExecution& execution) {
  const SharedModel::Reading model(shared);
  const DataDescription& data = model->data();
  if (!levels.empty()) data.series.errors.check(levels);
  const Table table = table_from(source);
  std::vector<SeriesForecast> forecasts;
  unless_interrupted([&] {
    Rows rows(table, data, {});
    const std::vector<GroupedRows> groups = read_groups(rows, data, {});
    if (groups.empty()) refuse(table.name + ": there are no rows after the header");
    warn_of_findings(rows);
    const Execution on = settled(*model, execution, {.steps = static_cast<Index>(groups.front().kept.size())});
    for (const GroupedRows& series : groups) forecasts.push_back(forecast(*model, series, levels, on));
  });
  nb::list answers;
  for (const SeriesForecast& series : forecasts) {
    Shape shape = {series.rows, data.series.horizon, static_cast<Index>(data.targets.size())};
    const nb::object values = array_of(shape, series.values);
    shape.push_back(static_cast<Index>(levels.size()));
    answers.append(
        nb::make_tuple(series.name, values, levels.empty() ? nb::none() : array_of(shape, series.quantiles)));
  }
  return answers;
}

/// Returns logits as an array [sequences, classes].
nb::object logits_of(const DataDescription& data, const std::vector<float>& logits) {
  const auto classes = static_cast<Index>(data.labels.classes.size());
  return array_of(Shape{static_cast<Index>(logits.size()) / classes, classes}, logits);
}

/// Returns the logits [sequences, classes] after the last row of each sequence.
nb::object label_table(SharedModel& shared, const Source& source, const std::string& sequence_column,
                       const CallExecution& execution) {
  const SharedModel::Reading model(shared);
  const DataDescription& data = model->data();
  const Table table = table_from(source);
  std::vector<float> logits;
  unless_interrupted([&] {
    Rows rows(table, data, {.keep = {}, .sequence_column = sequence_column, .format = {}});
    label_rows(
        *model, rows, settled(*model, execution, {}), [] {},
        [&](std::span<const float> last) { logits.insert(logits.end(), last.begin(), last.end()); });
    warn_of_findings(rows);
    if (logits.empty()) refuse(table.name + ": there are no rows after the header");
  });
  return logits_of(data, logits);
}

nb::dict describe(const ForecastErrors& errors) {
  return dict_of({{"rmse", errors.rmse}, {"mae", errors.mae}, {"mase", errors.mase}, {"smape", errors.smape}});
}

}  // namespace

nb::dict describe_scores(const std::vector<ColumnScore>& columns) {
  nb::dict all;
  for (const ColumnScore& column : columns) {
    nb::dict one = describe(column.model), rivals;
    one["scored"] = column.scored;
    one["season"] = column.season;
    if (column.quantiles) {
      const QuantileScore& score = *column.quantiles;
      one["quantiles"] = dict_of({{"levels", score.levels}, {"coverage", score.coverage}, {"pinball", score.pinball}});
    }
    for (const Rival& rival : column.rivals) rivals[rival.name.c_str()] = describe(rival.errors);
    one["rivals"] = rivals;
    one["best_rival"] = column.best_rival().name;
    all[column.column.c_str()] = one;
  }
  return all;
}

namespace {

nb::dict score_series_table(SharedModel& shared, const Source& source, Index skip, const std::vector<double>& levels,
                            int threads) {
  const Table table = table_from(source);
  SeriesScore score;
  unless_interrupted([&] {
    const SharedModel::Reading model(shared);
    Rows rows(table, model->data(), {});
    score = score_series(*model, rows, {.lead = skip, .levels = levels}, {.threads = threads});
    warn_of_findings(rows);
  });
  if (score.columns.empty()) {
    refuse(table.name + ": there is nothing to score after row " + std::to_string(skip) + ": the longest series has " +
           std::to_string(score.longest));
  }
  nb::dict result = dict_of({{"columns", describe_scores(score.columns)}});
  if (score.groups.empty()) return result;
  nb::dict groups;
  for (const GroupScore& group : score.groups) {
    groups[group.group.c_str()] = dict_of({{"columns", describe_scores(group.columns)}});
  }
  result["groups"] = groups;
  return result;
}

nb::dict describe(const LabelScore& score, const DataDescription& data, const std::string& name) {
  if (score.scored == 0) refuse(name + ": there is nothing to score");
  return dict_of({{"scored", score.scored},
                  {"accuracy", score.accuracy},
                  {"macro_f1", score.macro_f1},
                  {"classes", data.labels.classes},
                  {"confusion", score.confusion},
                  {"majority", data.labels.classes[static_cast<std::size_t>(score.majority)]},
                  {"majority_accuracy", score.majority_accuracy}});
}

nb::dict score_label_table(SharedModel& shared, const Source& source, const std::string& sequence_column,
                           const std::string& label_column, int threads) {
  const Table table = table_from(source);
  const SharedModel::Reading model(shared);
  LabelScore score;
  unless_interrupted([&] {
    Rows rows(table, model->data(), {.keep = {label_column}, .sequence_column = sequence_column, .format = {}});
    score = score_labelled(*model, rows, {.threads = threads});
    warn_of_findings(rows);
  });
  return describe(score, model->data(), table.name);
}

nb::object label_texts_given(SharedModel& shared, const std::vector<nb::bytes>& texts, const CallExecution& execution) {
  const SharedModel::Reading model(shared);
  std::vector<std::string_view> views;
  for (const nb::bytes& text : texts) views.emplace_back(text.c_str(), text.size());
  std::vector<float> logits;
  unless_interrupted([&] { logits = label_texts(*model, views, settled(*model, execution, {})); });
  return logits_of(model->data(), logits);
}

nb::object label_text_table(SharedModel& shared, const Source& source, const CallExecution& execution) {
  const SharedModel::Reading model(shared);
  const Table table = table_from(source);
  std::vector<float> logits;
  unless_interrupted([&] {
    const std::vector<TextRow> rows = read_text_rows(table, model->data(), {}, {});
    if (rows.empty()) refuse(table.name + ": there are no rows after the header");
    std::vector<std::string_view> texts;
    for (const TextRow& row : rows) texts.emplace_back(row.text);
    logits = label_texts(*model, texts, settled(*model, execution, {}));
  });
  return logits_of(model->data(), logits);
}

nb::dict score_text_table(SharedModel& shared, const Source& source, const std::string& label_column, int threads) {
  const Table table = table_from(source);
  const SharedModel::Reading model(shared);
  LabelScore score;
  unless_interrupted([&] { score = score_labelled_texts(*model, table, label_column, {.threads = threads}); });
  return describe(score, model->data(), table.name);
}

}  // namespace

void bind_answers(nb::module_& module) {
  module.def("forecast_table", &forecast_table);
  module.def("label_table", &label_table);
  module.def("score_series_table", &score_series_table);
  module.def("score_label_table", &score_label_table);
  module.def("label_texts", &label_texts_given);
  module.def("label_text_table", &label_text_table);
  module.def("score_text_table", &score_text_table);
  module.def("read_source", [](const std::string& path) {
    const std::string text = read_source(path);
    return nb::bytes(text.data(), text.size());
  });
}

}  // namespace penstock::python
