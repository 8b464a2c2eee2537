#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/score.h"
#include "train/autoregression.h"
#include "train/calendar.h"
#include "train/csv_table.h"
#include "train/normalise.h"
#include "train/series_rows.h"
#include "train/stream_dataset.h"
#include "train/table_values.h"

namespace penstock {
namespace {

using data::CsvHeader;
using data::CsvTable;

/// The used columns of the files, raw.
struct Series {
  std::vector<Index> lines;                        // of each row, for messages
  std::vector<std::vector<double>> columns;        // by position in the header; empty if not used
  std::vector<std::vector<std::uint8_t>> unknown;  // the same: 1 where a value is filled in and not to be asked for
  std::vector<Index> starts;                       // first rows of files, from the second one on
  data::TableValues values;                        // without columns: where each row came from
  Index rows() const { return static_cast<Index>(lines.size()); }
};

Series read_series(const CsvTable& table, std::vector<std::size_t> used, Missing missing) {
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  data::ValueReader reader(table, used, missing);
  for (auto rows = table.rows(); rows.next();) reader.add(rows);
  data::TableValues values = reader.take();
  std::vector<Index> begins = {0};
  begins.insert(begins.end(), values.starts.begin(), values.starts.end());
  std::vector<std::string> names;
  for (const std::size_t column : used) names.push_back(table.header().names()[column]);
  data::fill_missing(values, begins, missing, names);

  Series series{.lines = values.lines, .columns = {}, .unknown = {}, .starts = values.starts, .values = {}};
  series.columns.resize(table.header().names().size());
  series.unknown.resize(series.columns.size());
  for (std::size_t i = 0; i < used.size(); ++i) {
    series.columns[used[i]] = std::move(values.columns[i]);
    if (missing == Missing::mask) series.unknown[used[i]] = values.filled[i];
  }
  values.columns.clear();
  series.values = std::move(values);
  return series;
}

/// The first `training` values of a column, or their logarithms.
std::vector<double> seen_values(const Series& series, std::size_t position, Index training, bool logarithm) {
  std::vector<double> seen(series.columns[position].begin(), series.columns[position].begin() + training);
  for (double& value : seen) value = logarithm ? std::log(value) : value;
  return seen;
}

/// Mean and scale of the chosen columns over the first `training` rows. `logarithms`: the columns that are read by
/// them.
std::vector<Column> fit(const Series& series, const CsvHeader& header, const std::vector<std::size_t>& chosen,
                        Index training, const std::vector<bool>& logarithms) {
  std::vector<Column> columns;
  for (const std::size_t position : chosen) {
    const std::vector<double> seen = seen_values(series, position, training, logarithms[position]);
    columns.push_back(data::fit_column(header.names()[position], seen, header.source()));
    columns.back().logarithm = logarithms[position];
  }
  return columns;
}

/// How the targets that are inputs too are forecast by straight regressions, and by which of their values.
struct SeriesPlan {
  std::vector<bool> logarithms;                               // by position in the header
  std::vector<std::optional<training::LinearChoice>> linear;  // by target; none: its past is not read
  Index season = 0;                                           // of the first of those; 0: there are none
};

/// Values whose mean and spread are 0 and 1.
std::vector<double> standardised(std::vector<double> values, const Column& column) {
  for (double& value : values) value = (value - column.mean) / column.scale;
  return values;
}

class SeriesPlanner {
 public:
  SeriesPlanner(const CsvTable& table, const Series& series, Index training, const SeriesOptions& options)
      : table_(table), series_(series), training_(training), options_(options) {}

  /// The same columns by logarithms and of the same season as in `first`, with linear forecasts chosen anew.
  SeriesPlan plan_again(const SeriesPlan& first, const std::vector<std::size_t>& targets) const {
    SeriesPlan result = first;
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (result.linear[c]) result.linear[c] = choose(targets[c], first.logarithms[targets[c]]);
    }
    return result;
  }

  SeriesPlan plan(const std::vector<std::size_t>& inputs, const std::vector<std::size_t>& targets) const {
    SeriesPlan result;
    result.logarithms.assign(series_.columns.size(), false);
    result.linear.resize(targets.size());
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (std::find(inputs.begin(), inputs.end(), targets[c]) == inputs.end()) continue;
      auto [choice, logarithm] = choose(targets[c]);
      result.logarithms[targets[c]] = logarithm;
      if (result.season == 0) result.season = choice.season;
      if (options_.autoregression) result.linear[c] = std::move(choice);
    }
    return result;
  }

 private:
  bool is_positive(std::size_t position) const {
    return std::ranges::all_of(series_.columns[position], [](double value) { return value > 0.0; });
  }

  training::LinearChoice choose(std::size_t position, bool logarithm) const {
    const std::vector<double> seen = seen_values(series_, position, training_, logarithm);
    const Column column = data::fit_column(table_.header().names()[position], seen, table_.header().source());
    const Index season = options_.season > 0 ? options_.season : find_season(seen);
    if (!options_.autoregression) return {.horizon = options_.horizon, .season = season, .error = 0.0, .parts = {}};
    const auto raw = [&](double z) {
      const double value = z * column.scale + column.mean;
      return logarithm ? std::exp(value) : value;
    };
    return training::choose_linear_forecast(standardised(seen, column), options_.horizon, season, raw);
  }

  /// Logarithms are taken where they forecast clearly better: they cost a forecast that is off upwards dearly.
  std::pair<training::LinearChoice, bool> choose(std::size_t position) const {
    constexpr double clearly = 0.95;
    const bool possible = is_positive(position);
    if (options_.transform == Transform::logarithm) {
      if (!possible) {
        fail(ErrorCode::bad_input, "{}: column {} has values that are not positive, and so have no logarithm",
             table_.header().source(), in_quotes(table_.header().names()[position]));
      }
      return {choose(position, true), true};
    }
    training::LinearChoice plain = choose(position, false);
    if (options_.transform == Transform::none || !options_.autoregression || !possible)
      return {std::move(plain), false};
    training::LinearChoice logarithm = choose(position, true);
    if (!(logarithm.error < clearly * plain.error)) return {std::move(plain), false};
    return {std::move(logarithm), true};
  }

  const CsvTable& table_;
  const Series& series_;
  Index training_;
  const SeriesOptions& options_;
};

/// The chosen columns, normalised, as [rows, columns].
std::vector<float> normalise(const Series& series, const std::vector<std::size_t>& chosen,
                             const std::vector<Column>& columns) {
  std::vector<float> values(series.lines.size() * chosen.size());
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    const auto& raw = series.columns[chosen[c]];
    for (std::size_t row = 0; row < raw.size(); ++row) {
      values[row * chosen.size() + c] =
          data::normalise(raw[row], columns[c], series.values.source(static_cast<Index>(row)), series.lines[row]);
    }
  }
  return values;
}

/// Step p reads row p and is asked for the rows p + 1 .. p + horizon. As in a text, the last training row is the first
/// input of validation. Training walks through the file in windows that carry their state (see StreamWindows) and
/// not in windows from random places: a deployed forecaster sees one endless stream, and so states far from a
/// start are what it must know.
class SeriesDataset final : public data::StreamDataset, public training::SeriesRows {
 public:
  SeriesDataset(const CsvTable& table, const Series& series, const std::vector<std::size_t>& inputs,
                const std::vector<std::size_t>& targets, Index held_out, const SeriesOptions& options)
      : StreamDataset("series", series.rows() - held_out - 1, held_out, series.starts),
        training_rows_(series.rows() - held_out),
        rows_(series.rows()),
        starts_(series.starts),
        plan_(SeriesPlanner(table, series, training_rows_, options).plan(inputs, targets)) {
    description_.task = Task::forecast;
    description_.horizon = options.horizon;
    description_.delimiter = table.format().delimiter;
    description_.decimal = table.format().decimal;
    description_.header = table.format().header;
    description_.missing = options.missing;
    description_.season = plan_.season;
    description_.inputs = fit(series, table.header(), inputs, training_rows_, plan_.logarithms);
    description_.targets = fit(series, table.header(), targets, training_rows_, plan_.logarithms);
    if (options.from_last) scale_by_changes(series, inputs, targets);
    inputs_ = normalise(series, inputs, description_.inputs);
    targets_ = normalise(series, targets, description_.targets);
    add_features(table, series, inputs, options);
    if (options.autoregression) {
      const SeriesPlan again = SeriesPlanner(table, series, rows_, options).plan_again(plan_, targets);
      autoregression_ = fit_linear(plan_, training_rows_);
      refitted_ = fit_linear(again, rows_);
      find_past_errors();
      const Index lags = std::max(autoregression_->lags, refitted_.lags);
      for (Autoregression* const each : {&*autoregression_, &refitted_}) {
        each->weights.resize(static_cast<std::size_t>(lags * description_.output_size()), 0.0f);
        each->lags = lags;
      }
      constexpr Index past = 128;  // that a state needs to settle
      lead_ = std::min(training_rows_ - 1, std::max(past, autoregression_->lags));
    }
    for (const auto* values : {&inputs_, &targets_}) {
      const auto bytes = std::as_bytes(std::span(*values));
      fingerprint_ = data::fingerprint({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                       fingerprint_ + static_cast<std::uint64_t>(options.horizon));
    }
    fingerprint_ += static_cast<std::uint64_t>(held_out);
    for (const Index start : starts_) fingerprint_ = data::fingerprint("start", fingerprint_ + start);
    keep_unknown(series, targets);
  }

  const Autoregression* autoregression() const override { return autoregression_ ? &*autoregression_ : nullptr; }

  Index rows() const override { return rows_; }
  Index training_rows() const override { return training_rows_; }
  const std::vector<Index>& starts() const override { return starts_; }
  std::span<const float> inputs() const override { return inputs_; }
  std::span<const float> targets() const override { return targets_; }
  bool is_asked_for(Index row, Index target) const override {
    return unknown_.empty() || unknown_[row * static_cast<Index>(description_.targets.size()) + target] == 0;
  }
  const training::RowErrors& past_errors() const override { return past_errors_; }
  const Autoregression* refitted() const override { return autoregression_ ? &refitted_ : nullptr; }

  /// Where a linear forecast reads a past, every row of a batch is led in by what stands before it, and that is not
  /// scored. Without one, as in a text, rows start without a past.
  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    if (lead_ == 0) return StreamDataset::validation(i, rows, steps, example);
    data::check_batch(rows, steps);
    const Index held_out = rows_ - training_rows_;
    rows = std::clamp<Index>(held_out / std::max(steps, lead_), 1, rows);
    const Index longest = lead_ + (held_out + rows - 1) / rows;
    if (held_out == 0 || i < 0 || i >= (longest + steps - 1) / steps) return false;
    const Index begin = i * steps;
    steps = std::min(steps, longest - begin);
    data::clear(example, rows, steps);
    example.continues = i > 0;
    std::vector<Index> places(static_cast<std::size_t>(rows * steps), -1);
    std::vector<bool> leads(places.size(), false);
    for (Index b = 0; b < rows; ++b) {
      const Index first = held_out * b / rows, count = held_out * (b + 1) / rows - first;
      const Index length = std::clamp<Index>(lead_ + count - begin, 0, steps);
      for (Index t = 0; t < length; ++t) {
        places[b * steps + t] = training_rows_ - 1 + first - lead_ + begin + t;
        leads[b * steps + t] = begin + t < lead_;
      }
      example.lengths.push_back(length);
    }
    mark_starts(places, example);
    fill(places, Part::validation, example);
    const Index outputs = description_.output_size();
    for (std::size_t place = 0; place < places.size(); ++place) {
      if (leads[place]) std::fill_n(example.weights.begin() + static_cast<Index>(place) * outputs, outputs, 0.0f);
    }
    return true;
  }

 private:
  /// The linear forecast of a plan, fitted to the first rows.
  Autoregression fit_linear(const SeriesPlan& plan, Index rows) const {
    const std::size_t targets = description_.targets.size();
    const Index horizon = description_.horizon, width = description_.output_size();
    std::vector<training::LinearForecast> forecasts(targets);
    Autoregression result;
    for (std::size_t c = 0; c < targets; ++c) {
      if (!plan.linear[c]) continue;
      std::vector<double> z;
      for (Index row = 0; row < rows; ++row) z.push_back(static_cast<double>(targets_[row * targets + c]));
      forecasts[c] = training::fit_linear_forecast(z, *plan.linear[c]);
      result.lags = std::max(result.lags, forecasts[c].lags);
    }
    result.weights.assign(static_cast<std::size_t>(result.lags * width), 0.0f);
    result.bias.assign(static_cast<std::size_t>(width), 0.0f);
    for (std::size_t c = 0; c < targets; ++c) {
      const training::LinearForecast& forecast = forecasts[c];
      for (Index h = 0; plan.linear[c] && h < horizon; ++h) {
        const auto at = static_cast<std::size_t>(h) * targets + c;
        result.bias[at] = static_cast<float>(forecast.bias[h]);
        for (Index k = 0; k < forecast.lags; ++k) {
          const double last = k == 0 ? 1.0 : 0.0;  // which the model adds anyway
          result.weights[k * width + at] = static_cast<float>(forecast.weights[k * horizon + h] - last);
        }
      }
    }
    return result;
  }

  /// Those of fits to some beginnings, each up to the end of the next.
  void find_past_errors() {
    constexpr double beginnings[] = {0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
    constexpr Index most_origins = 200;  // behind each
    for (std::size_t i = 0; i + 1 < std::size(beginnings); ++i) {
      const auto first = static_cast<Index>(beginnings[i] * static_cast<double>(training_rows_));
      const auto end = static_cast<Index>(beginnings[i + 1] * static_cast<double>(training_rows_));
      if (first <= 2 * description_.horizon) continue;
      const Autoregression linear = fit_linear(plan_, first);
      const Index stride = std::max<Index>(1, (end - first) / most_origins);
      for (Index row = std::max(first, linear.lags) - 1; row + 1 < end; row += stride) add_past_errors(linear, row);
    }
  }

  /// Of forecasts from one row.
  void add_past_errors(const Autoregression& linear, Index row) {
    past_errors_.rows.push_back(row);
    const auto targets = static_cast<Index>(description_.targets.size());
    const Index width = description_.output_size();
    for (Index i = 0; i < width; ++i) {
      const Index c = i % targets, to = row + 1 + i / targets;
      float error = std::numeric_limits<float>::quiet_NaN();
      if (plan_.linear[c] && to < std::min(training_rows_, end_of_file(row, rows_)) && is_asked_for(to, c)) {
        float forecast = targets_[row * targets + c] + linear.bias[i];
        for (Index k = 0; k < linear.lags; ++k) {
          forecast += linear.weights[k * width + i] * targets_[(row - k) * targets + c];
        }
        error = forecast - targets_[to * targets + c];
      }
      past_errors_.errors.push_back(error);
    }
  }

  /// A file's first row starts anew, wherever a batch meets it.
  void mark_starts(const std::vector<Index>& places, Example& example) const {
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!std::binary_search(starts_.begin(), starts_.end(), places[i])) continue;
      example.reset.resize(places.size(), 0);
      example.reset[i] = 1;
    }
  }

  /// [rows, targets], or empty if all targets are known.
  void keep_unknown(const Series& series, const std::vector<std::size_t>& targets) {
    for (std::size_t c = 0; c < targets.size(); ++c) {
      const auto& unknown = series.unknown[targets[c]];
      if (unknown.empty()) continue;
      unknown_.resize(series.lines.size() * targets.size(), 0);
      for (std::size_t row = 0; row < unknown.size(); ++row) unknown_[row * targets.size() + c] = unknown[row];
    }
  }

  /// The first row behind `place` that belongs to another file, or `end`.
  Index end_of_file(Index place, Index end) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), place);
    return next == starts_.end() ? end : std::min(*next, end);
  }

  /// Inputs that are no values: where a date stands in its cycles, and whether a value was missing.
  void add_features(const CsvTable& table, const Series& series, const std::vector<std::size_t>& inputs,
                    const SeriesOptions& options) {
    const auto& names = table.header().names();
    std::vector<std::vector<double>> raw;
    if (options.calendar.read) {
      if (const auto calendar = data::find_calendar(table, options.calendar, inputs, training_rows_)) {
        for (const Feature feature : calendar->features) {
          description_.inputs.push_back({.name = names[calendar->column], .feature = feature, .dates = calendar->form});
          raw.push_back(calendar->seconds);
        }
        add_reading(calendar->describe(names[calendar->column]));
      }
    }
    for (const std::size_t input : inputs) {
      const auto& unknown = series.unknown[input];
      if (std::ranges::find(unknown, 1) == unknown.end()) continue;
      description_.inputs.push_back({.name = names[input], .feature = Feature::missing});
      raw.emplace_back();
      for (const std::uint8_t missing : unknown) raw.back().push_back(missing != 0 ? std::nan("") : 0.0);
    }
    if (raw.empty()) return;
    std::vector<float> widened;
    for (Index row = 0; row < rows_; ++row) {
      const auto first = inputs_.begin() + row * static_cast<Index>(inputs.size());
      widened.insert(widened.end(), first, first + static_cast<Index>(inputs.size()));
      for (std::size_t i = 0; i < raw.size(); ++i) {
        widened.push_back(static_cast<float>(description_.inputs[inputs.size() + i].normal(raw[i][row])));
      }
    }
    inputs_ = std::move(widened);
  }

  void scale_by_changes(const Series& series, const std::vector<std::size_t>& inputs,
                        const std::vector<std::size_t>& targets) {
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (std::find(inputs.begin(), inputs.end(), targets[c]) == inputs.end()) continue;
      const std::vector<double> seen = seen_values(series, targets[c], training_rows_, plan_.logarithms[targets[c]]);
      data::fit_changes(description_.targets[c], seen, description_.horizon);
    }
  }

  /// Targets that are not known, or held out, have weight 0.
  void fill(const std::vector<Index>& places, Part part, Example& example) const override {
    const Index end = part == Part::training ? training_rows_ : rows_;
    const auto inputs = static_cast<Index>(description_.inputs.size());
    const auto targets = static_cast<Index>(description_.targets.size());
    const Index outputs = description_.output_size();
    const auto count = static_cast<Index>(places.size());
    example.features.assign(static_cast<std::size_t>(count * inputs), 0.0f);
    example.targets.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    example.weights.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    for (Index i = 0; i < count; ++i) {
      const Index place = places[i];
      if (place < 0) continue;
      std::copy_n(inputs_.begin() + place * inputs, inputs, example.features.begin() + i * inputs);
      const Index known = std::min(description_.horizon, end_of_file(place, end) - 1 - place) * targets;
      std::copy_n(targets_.begin() + (place + 1) * targets, known, example.targets.begin() + i * outputs);
      std::fill_n(example.weights.begin() + i * outputs, known, 1.0f);
      if (unknown_.empty()) continue;
      for (Index k = 0; k < known; ++k) {
        if (unknown_[(place + 1) * targets + k] != 0) example.weights[i * outputs + k] = 0.0f;
      }
    }
  }

  Index training_rows_;
  Index rows_;
  std::vector<Index> starts_;          // first rows of files, from the second one on
  std::vector<std::uint8_t> unknown_;  // [rows, targets] or empty: 1 is never asked for
  SeriesPlan plan_;
  std::optional<Autoregression> autoregression_;
  Autoregression refitted_;  // with as many lags
  training::RowErrors past_errors_;
  Index lead_ = 0;
  std::vector<float> inputs_;   // [rows, I]
  std::vector<float> targets_;  // [rows, targets]
};

}  // namespace

std::unique_ptr<Dataset> open_series(const std::string& path, const SeriesOptions& options) {
  return open_series(Sources{path}, options);
}

std::unique_ptr<Dataset> open_series(const Sources& sources, const SeriesOptions& options) {
  data::check_validation_fraction(options.validation_fraction);
  require(options.from_last || !options.autoregression, "autoregression goes with from_last");
  require(options.season >= 0, "season must not be negative, not {}", options.season);
  check_enum("transform", options.transform, Transform::logarithm);
  require(options.horizon >= 1 && options.horizon <= 1'000'000, "horizon must be 1 to 1000000, not {}",
          options.horizon);
  const CsvTable table(sources, options.format);
  const std::string& path = table.header().source();
  CsvTable::Choice choice;
  if (options.inputs.empty()) choice = table.numeric_columns({});
  const auto inputs = options.inputs.empty() ? choice.columns : table.columns(options.inputs, "inputs");
  const auto targets = options.targets.empty() ? inputs : table.columns(options.targets, "targets");
  std::vector<std::size_t> used = inputs;
  used.insert(used.end(), targets.begin(), targets.end());
  const Series series = read_series(table, used, options.missing);

  Index held_out = data::held_out(series.rows(), options.validation_fraction);
  // Of a short series at least one whole forecast, as long as training keeps more than that.
  if (held_out > 0 && series.rows() > 2 * options.horizon) held_out = std::max(held_out, options.horizon);
  const Index training = series.rows() - held_out;
  if (training < options.horizon + 1 || (held_out > 0 && held_out < options.horizon)) {
    fail(ErrorCode::bad_input,
         "{}: {} rows are too few for horizon {}: training gets {} and needs {}, validation gets {} and needs {}", path,
         series.rows(), options.horizon, training, options.horizon + 1, held_out,
         options.validation_fraction > 0.0 ? options.horizon : 0);
  }
  if (options.season > 1 && training < 2 * options.season) {
    fail(ErrorCode::bad_input, "{}: a season of {} rows does not show in {} rows of training: it takes {} or more",
         path, options.season, training, 2 * options.season);
  }
  auto dataset = std::make_unique<SeriesDataset>(table, series, inputs, targets, held_out, options);
  const auto is_read = [&](const CsvTable::LeftOut& column) {
    return std::ranges::any_of(dataset->description().inputs, [&](const Column& input) {
      return input.name == table.header().names()[column.column];
    });
  };
  std::erase_if(choice.left_out, is_read);
  std::vector<std::string> reading = table.reading(inputs.size(), choice);
  for (std::string& finding : dataset->reading()) reading.push_back(std::move(finding));
  dataset->set_reading(std::move(reading));
  dataset->add_reading(data::describe_filled(series.values, options.missing));
  return dataset;
}

}  // namespace penstock
