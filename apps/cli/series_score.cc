#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "grouped_rows.h"
#include "input.h"
#include "penstock/error.h"
#include "penstock/spread_tracker.h"
#include "score_report.h"
#include "sequence.h"
#include "units.h"

namespace penstock::cli {
namespace {

/// Values of the targets in a row, raw: what the model reads of them, or the text of their column where it reads
/// something else.
class TargetValues {
 public:
  TargetValues(const DataDescription& data, const Rows& rows) {
    for (const Column& target : data.targets) {
      if (const auto input = data.input_of(target.name)) {
        places_.push_back({*input, true});
        continue;
      }
      const auto column = rows.reader().column(target.name);
      if (!column) {
        throw Error(ErrorCode::bad_input, fmt::format("the file has no column '{}', with which forecasts are compared",
                                                      printable(target.name)));
      }
      places_.push_back({*column, false});
    }
  }

  /// Those that the model does not read; the others are not numbers yet.
  std::vector<double> read(const Rows& rows, bool missing) const {
    std::vector<double> values;
    for (const Place& place : places_) {
      const bool unknown = missing || place.is_input;
      values.push_back(unknown ? std::numeric_limits<double>::quiet_NaN() : number(rows, place.index));
    }
    return values;
  }

  /// Puts in the others, from a row of features as a description scales them. Those that are not `known` [targets] stay
  /// no numbers.
  void complete(std::vector<double>& values, std::span<const float> features, std::span<const std::uint8_t> known,
                const DataDescription& data) const {
    for (std::size_t c = 0; c < places_.size(); ++c) {
      const Place& place = places_[c];
      if (!place.is_input || known[c] == 0) continue;
      values[c] = data.inputs[place.index].raw(static_cast<double>(features[place.index]));
    }
  }

 private:
  struct Place {
    std::size_t index;
    bool is_input;
  };

  static double number(const Rows& rows, std::size_t column) {
    if (const auto value = rows.reader().number(column)) return *value;
    throw Error(ErrorCode::bad_input,
                fmt::format("'{}' is no number to compare a forecast with", printable(rows.reader().text(column))));
  }

  std::vector<Place> places_;
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
        tracker_(data_),
        sequence_(model, execution) {}

  /// `values` of the targets, raw.
  void add(std::span<const float> features, std::vector<double> values, std::optional<double> date) {
    if (sequence_.waiting() == Sequence::piece) answer();
    sequence_.add(features);
    waiting_.push_back({{features.begin(), features.end()}, std::move(values), date});
  }

  GroupScore finish() {
    if (!waiting_.empty()) answer();
    return {.group = name_, .columns = scorer_.scores()};
  }

 private:
  void answer() {
    const auto outputs = static_cast<std::size_t>(data_.output_size());
    const auto all = sequence_.run();
    std::vector<double> forecasts(outputs);
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const bool counts = ++row_ >= options_.lead;
      for (std::size_t j = 0; j < outputs; ++j) {
        forecasts[j] = data_.targets[j % data_.targets.size()].raw(static_cast<double>(all[i * outputs + j]));
      }
      const auto scored = counts ? std::span<const double>(forecasts) : std::span<const double>();
      const auto& [features, values, date] = waiting_[i];
      tracker_.add(features, all.subspan(i * outputs, outputs), known_of(values));
      if (options_.watch) data_.spread = tracker_.spread();
      scorer_.add(values, scored, tracker_.widths());
      if (options_.watch) options_.watch(name_, data_, values, scored, date);
    }
    waiting_.clear();
  }

  static std::vector<std::uint8_t> known_of(const std::vector<double>& values) {
    std::vector<std::uint8_t> known;
    for (const double value : values) known.push_back(std::isnan(value) ? 0 : 1);
    return known;
  }

  struct Row {
    std::vector<float> features;
    std::vector<double> values;  // of the targets, raw
    std::optional<double> date;
  };

  DataDescription data_;  // with the spread of the latest forecasts
  std::string name_;
  const SeriesScoring& options_;
  ForecastScorer scorer_;
  SpreadTracker tracker_;
  Sequence sequence_;
  std::vector<Row> waiting_;  // in the sequence
  Index row_ = 0;
};

/// What leads in says how a series that training did not see is scaled; all rows if nothing does.
Score score_groups(const Model& model, Rows& rows, const std::string& path, const SeriesScoring& options,
                   const Execution& execution) {
  const DataDescription& data = model.data();
  const TargetValues targets(data, rows);
  const GroupReading reading{.scaled_by = options.lead > 1 ? options.lead : 0,
                             .values_of = [&](const Rows& row, bool missing) { return targets.read(row, missing); }};
  std::vector<GroupedRows> groups = read_groups(rows, data, reading);
  say_new_groups(groups, path, reading.scaled_by);
  const auto inputs = static_cast<std::size_t>(data.input_size());
  Score score;
  for (GroupedRows& series : groups) {
    SeriesScorer scorer(model, series.data, series.name, options, execution);
    for (std::size_t row = 0; row < series.values.size(); ++row) {
      const auto features = std::span<const float>(series.features).subspan(row * inputs, inputs);
      const auto known = std::span(series.known).subspan(row * data.targets.size(), data.targets.size());
      targets.complete(series.values[row], features, known, series.data);
      scorer.add(features, std::move(series.values[row]), series.dates[row]);
    }
    GroupScore group = scorer.finish();
    if (!group.columns.empty()) score.groups.push_back(std::move(group));
  }
  score.columns = score_all(score.groups);
  if (data.group_column.empty()) score.groups.clear();
  return score;
}

}  // namespace

Score score_series(const Model& model, const std::string& path, const SeriesScoring& options,
                   const Execution& execution) {
  const DataDescription& data = model.data();
  Input input(path);
  input.show_progress();
  Rows rows(input, data, {});
  if (!data.group_column.empty() || data.reads_ahead()) return score_groups(model, rows, path, options, execution);
  const TargetValues targets(data, rows);
  SeriesScorer scorer(model, data, "", options, execution);
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank) continue;
    std::vector<double> values = targets.read(rows, kind == Rows::Kind::missing);
    targets.complete(values, rows.features(), rows.known_targets(), data);
    scorer.add(rows.features(), std::move(values), rows.date());
  }
  Score score;
  score.columns = scorer.finish().columns;
  return score;
}

}  // namespace penstock::cli
