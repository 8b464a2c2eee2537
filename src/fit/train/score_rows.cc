#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/data_description.h"
#include "penstock/train/answer_rows.h"
#include "penstock/train/score_rows.h"

namespace penstock {
namespace {

/// Values of the targets in a row, raw, also of those that the model does not read.
class TargetValues {
 public:
  TargetValues(const DataDescription& data, const Rows& rows) {
    for (const Column& target : data.targets) {
      if (data.input_of(target.name)) {
        columns_.emplace_back();
        continue;
      }
      const auto column = rows.reader().column(target.name);
      if (!column) {
        fail(ErrorCode::bad_input, "{}: there is no column {}, with which forecasts are compared", rows.name(),
             in_quotes(target.name));
      }
      columns_.push_back(column);
    }
  }

  /// Those that are not known are no numbers, and none is of a row that is missing.
  std::vector<double> read(const Rows& rows, bool missing) const {
    const std::span<const double> read = rows.target_values();
    std::vector<double> values(read.begin(), read.end());
    for (std::size_t c = 0; c < values.size(); ++c) {
      if (columns_[c] && !missing) values[c] = number(rows, *columns_[c]);
    }
    return values;
  }

 private:
  static double number(const Rows& rows, std::size_t column) {
    if (const auto value = rows.reader().number(column)) return *value;
    fail(ErrorCode::bad_input, "{}: {} is no number to compare a forecast with", rows.name(),
         in_quotes(rows.reader().text(column)));
  }

  std::vector<std::optional<std::size_t>> columns_;  // of each target in the header; none: the model reads it
};

/// Forecasts one series and compares.
class SeriesScorer {
 public:
  SeriesScorer(const Model& model, DataDescription data, std::string name, const SeriesScoring& options,
               const Execution& execution)
      : data_(std::move(data)),
        name_(std::move(name)),
        options_(options),
        scorer_(data_, options.levels),
        run_(model, data_, execution, [this](const auto&... row) { answer(row...); }) {}
  SeriesScorer(const SeriesScorer&) = delete;
  SeriesScorer& operator=(const SeriesScorer&) = delete;

  /// `values` of the targets, raw; `lacking` as a ForecastWatcher is told it.
  void add(std::span<const float> features, std::span<const double> values, std::optional<double> date,
           Index lacking = 0) {
    run_.add(features, values, {date, lacking});
  }

  GroupScore finish() {
    run_.finish();
    return {.group = name_, .columns = scorer_.scores()};
  }

 private:
  struct Row {
    std::optional<double> date;
    Index lacking;  // rows, of what is known in advance
  };

  void answer(const Row& row, std::span<const double> values, std::span<const float> outputs,
              const IntervalTracker& tracker) {
    const bool counts = ++row_ >= options_.lead;
    std::vector<double> forecasts;
    for (std::size_t j = 0; counts && j < outputs.size(); ++j) {
      forecasts.push_back(data_.targets[j % data_.targets.size()].raw(static_cast<double>(outputs[j])));
    }
    if (options_.watch) data_.series.errors = tracker.distribution();
    scorer_.add(values, forecasts, tracker.widths());
    if (options_.watch) options_.watch(name_, data_, values, forecasts, row.date, row.lacking);
  }

  DataDescription data_;  // with the spread of the latest forecasts
  std::string name_;
  const SeriesScoring& options_;
  ForecastScorer scorer_;
  ForecastRun<Row> run_;
  Index row_ = 0;
};

/// Scores series. The lead-in rows scale a series that training did not see; without a lead, all its rows do.
SeriesScore score_grouped(const Model& model, Rows& rows, const SeriesScoring& options, const Execution& execution) {
  const DataDescription& data = model.data();
  const TargetValues targets(data, rows);
  const GroupReading reading{.scaled_by = options.lead > 1 ? options.lead : 0,
                             .values_of = [&](const Rows& row, bool missing) { return targets.read(row, missing); }};
  std::vector<GroupedRows> groups = read_groups(rows, data, reading);
  const auto inputs = static_cast<std::size_t>(data.input_size());
  SeriesScore score;
  score.new_groups = new_groups(groups);
  Index longest_new = 0;
  for (const GroupedRows& series : groups) {
    const auto length = static_cast<Index>(series.values.size());
    score.longest = std::max(score.longest, length);
    if (!series.trained) longest_new = std::max(longest_new, length);
  }
  if (longest_new > reading.scaled_by) score.scaled_by = reading.scaled_by;
  for (GroupedRows& series : groups) {
    SeriesScorer scorer(model, series.data, series.name, options, execution);
    for (std::size_t row = 0; row < series.values.size(); ++row) {
      const auto features = std::span<const float>(series.features).subspan(row * inputs, inputs);
      scorer.add(features, series.values[row], series.dates[row], series.lacking(static_cast<Index>(row)));
    }
    GroupScore group = scorer.finish();
    if (!group.columns.empty()) score.groups.push_back(std::move(group));
  }
  score.columns = score_all(score.groups);
  if (data.series.group_column.empty()) score.groups.clear();
  return score;
}

}  // namespace

std::vector<std::string> new_groups(const std::vector<GroupedRows>& groups) {
  std::vector<std::string> names;
  for (const GroupedRows& series : groups) {
    if (!series.trained) names.push_back(series.name);
  }
  return names;
}

SeriesScore score_series(const Model& model, Rows& rows, const SeriesScoring& options, const Execution& execution) {
  const DataDescription& data = model.data();
  if (!data.series.group_column.empty() || data.reads_ahead()) return score_grouped(model, rows, options, execution);
  const TargetValues targets(data, rows);
  SeriesScorer scorer(model, data, "", options, execution);
  SeriesScore score;
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank) continue;
    scorer.add(rows.features(), targets.read(rows, kind == Rows::Kind::missing), rows.date());
    ++score.longest;
  }
  score.columns = scorer.finish().columns;
  return score;
}

LabelScore score_labelled(const Model& model, Rows& rows, const Execution& execution) {
  const DataDescription& data = model.data();
  std::vector<std::vector<Index>> confusion(data.labels.classes.size(),
                                            std::vector<Index>(data.labels.classes.size(), 0));
  std::string label;
  const auto count = [&](std::span<const float> logits) {
    const auto truth = std::ranges::find(data.labels.classes, label);
    if (truth == data.labels.classes.end()) {
      fail(ErrorCode::bad_input, "{}: label {} is none that the model knows", rows.name(), in_quotes(label));
    }
    const auto answer = std::ranges::max_element(logits) - logits.begin();
    ++confusion[static_cast<std::size_t>(truth - data.labels.classes.begin())][static_cast<std::size_t>(answer)];
  };
  label_rows(
      model, rows, execution, [&] { label = rows.kept().front(); }, count);
  return score_labels(std::move(confusion));
}

}  // namespace penstock
