#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/threads.h"
#include "data/column_scaling.h"
#include "data/model_to_continue.h"
#include "data/series/calendar.h"
#include "data/series/cycle_test.h"
#include "data/series/lost_changes.h"
#include "data/series/series_columns.h"
#include "data/series/series_features.h"
#include "data/series/series_plan.h"
#include "data/series/series_rows.h"
#include "data/series/series_steps.h"
#include "data/series/series_table.h"
#include "data/stream_dataset.h"
#include "data/table/dates.h"
#include "data/table/fill_missing.h"
#include "data/table/open_table.h"
#include "data/table/sentinels.h"
#include "penstock/data/dataset.h"
#include "penstock/data/series.h"
#include "penstock/data_description.h"

namespace penstock {
namespace {

using data::OpenTable;
using data::SeriesPart;
using data::SeriesTable;
using training::Segment;

/// Sources of a dataset, and of a part of it.
struct SeriesSource {
  std::shared_ptr<const OpenTable> table;
  std::shared_ptr<const SeriesTable> series;
  data::SeriesColumns columns;
  SeriesOptions options;
  std::optional<DataDescription> origin;  // of a model that is trained further
};

/// Step p reads a row and is asked for those that follow. As in a text, the last training row is the first input of
/// validation. Training reads the segments in windows that carry their state (see StreamDataset) and not in
/// windows from random places: a deployed forecaster sees one endless stream, and so states far from a start are what
/// it must know.
class SeriesDataset final : public data::StreamDataset, public training::SeriesRows {
 public:
  explicit SeriesDataset(const SeriesSource& source)
      : SeriesDataset(source, data::SeriesSteps(source.series->segments)) {}

  const std::vector<Segment>& segments() const override { return segments_; }
  std::span<const float> inputs() const override { return inputs_; }
  std::span<const float> targets() const override { return targets_; }
  double value(Index row, Index target) const override {
    return table_rows().values.columns[source_.columns.targets[target]][row];
  }
  bool is_known(Index row, Index target) const override {
    return unknown_.empty() || unknown_[row * static_cast<Index>(description_.targets.size()) + target] == 0;
  }
  std::optional<double> date(Index row) const override {
    const auto& calendar = table_rows().calendar;
    return calendar && calendar->rises() ? std::optional(calendar->seconds[row]) : std::nullopt;
  }
  const SeriesRows* series_rows() const override { return this; }
  const training::LinearPlans& linear_plans() const override { return plan_.linear; }
  training::LinearPlans plan_by_all_rows() const override {
    return data::plan_again(plan_, table(), table_rows(), source_.options, source_.columns, SeriesPart::all);
  }
  training::LinearPlans plan_of_group(Index group, bool all_rows) const override {
    SeriesTable own = table_rows();
    std::erase_if(own.segments, [&](const Segment& segment) { return segment.group != group; });
    const data::SeriesPart part = all_rows ? SeriesPart::all : SeriesPart::training;
    return data::plan_again(plan_, table(), own, source_.options, source_.columns, part, source_.options.season);
  }
  int threads() const override { return resolve_threads(source_.options.threads); }

  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    return held_out_batch(i, rows, steps, 0, example);
  }
  /// Lead-in rows are not scored. Without a linear forecast, as in a text, rows start without a past.
  bool held_out_batch(Index i, Index rows, Index steps, Index past_rows, Example& example) const override {
    const Index lead = lead_for(past_rows);
    if (lead == 0) return StreamDataset::validation(i, rows, steps, example);
    data::check_batch(rows, steps);
    const auto batch = batches_of(lead, rows, steps)->batch(i);
    if (!batch) return false;
    data::clear(example, static_cast<Index>(batch->lengths.size()), batch->steps);
    example.continues = batch->continues;
    example.lengths = batch->lengths;
    mark_starts(batch->rows, example);
    fill_rows(batch->rows, Part::validation, example);
    const Index outputs = description_.output_size();
    for (std::size_t place = 0; place < batch->rows.size(); ++place) {
      if (!batch->leads[place]) continue;
      std::fill_n(example.weights.begin() + static_cast<Index>(place) * outputs, outputs, 0.0f);
    }
    return true;
  }

 private:
  /// Rows that lead in a row of a held-out batch, at most.
  Index lead_for(Index past_rows) const {
    if (plan_.linear.empty()) return 0;
    constexpr Index past = 128;  // that a state needs to settle
    const Index longest = std::ranges::max(segments_, {}, &Segment::training_rows).training_rows();
    return std::min(longest - 1, std::max(past, past_rows));
  }

  /// Any number of threads may ask for batches of their sizes.
  std::shared_ptr<const data::HeldOutBatches> batches_of(Index lead, Index rows, Index steps) const {
    const std::lock_guard lock(batches_guard_);
    if (!batches_ || !batches_->are_of(lead, rows, steps)) {
      batches_ = std::make_shared<const data::HeldOutBatches>(segments_, lead, rows, steps);
    }
    return batches_;
  }

  SeriesDataset(const SeriesSource& source, const data::SeriesSteps& steps)
      : StreamDataset("series", steps.training, steps.held_out, steps.starts),
        source_(source),
        segments_(source.series->segments),
        row_of_step_(steps.rows) {
    const auto& [inputs, targets, known, parts] = source_.columns;
    const DataDescription* const origin = source_.origin ? &*source_.origin : nullptr;
    plan_ = data::plan_series(table(), table_rows(), source_.options, source_.columns, origin);
    describe();
    if (source_.options.from_last) scale_by_changes();
    for (std::size_t c = 0; c < targets.size() && !source_.options.allow_negative; ++c) {
      Column& target = description_.targets[c];
      target.non_negative = !target.logarithm && data::ends_at_zero(table_rows(), targets[c]);
    }
    if (origin != nullptr) data::take_scaling(description_, *origin, table().header().source());
    inputs_ = normalise(inputs, &DataDescription::inputs, &Group::inputs);
    targets_ = normalise(targets, &DataDescription::targets, &Group::targets);
    keep_unknown();
    masks_ = table_rows().missing == Missing::mask;
    set_reading(data::lost_changes(description_, table(), table_rows(), inputs, inputs_));
    add_features(origin);
    std::vector<std::size_t> known_inputs;
    for (const std::size_t position : known) {
      known_inputs.push_back(static_cast<std::size_t>(std::ranges::find(inputs, position) - inputs.begin()));
    }
    data::add_ahead(known_inputs, segments_, description_, inputs_);
    take_fingerprint();
  }

  const OpenTable& table() const { return *source_.table; }
  const SeriesTable& table_rows() const { return *source_.series; }

  void describe() {
    const SeriesOptions& options = source_.options;
    const SeriesTable& series = table_rows();
    description_.task = Task::forecast;
    description_.series.horizon = options.horizon;
    description_.table = data::describe_table(table().format(), options.missing);
    description_.series.undated = options.undated;
    if (series.calendar && series.calendar->rises() && series.calendar->dates.irregular != Irregular::ignore) {
      description_.series.row_dates = series.calendar->dates;
    }
    description_.series.season = plan_.season;
    description_.series.group_column = options.group_by_file ? "file" : options.group;
    description_.series.groups_are_files = options.group_by_file;
    for (const std::string& name : series.groups)
      description_.series.groups.push_back({.name = name, .inputs = {}, .targets = {}});
    const auto add = [&](const std::vector<std::size_t>& chosen, std::vector<Column>& columns,
                         std::vector<Scaling> Group::*scaling) {
      for (const std::size_t position : chosen) {
        data::FittedColumn fitted =
            fit_series_column(series, table(), position, SeriesPart::training, plan_.logarithms[position]);
        columns.push_back(std::move(fitted.column));
        for (std::size_t g = 0; g < fitted.groups.size(); ++g) {
          (description_.series.groups[g].*scaling).push_back(fitted.groups[g]);
        }
      }
    };
    add(source_.columns.inputs, description_.inputs, &Group::inputs);
    add(source_.columns.targets, description_.targets, &Group::targets);
  }

  /// The chosen columns, normalised, as [rows, columns].
  std::vector<float> normalise(const std::vector<std::size_t>& chosen, std::vector<Column> DataDescription::*columns,
                               std::vector<Scaling> Group::*scalings) const {
    const SeriesTable& series = table_rows();
    std::vector<float> values(static_cast<std::size_t>(series.rows()) * chosen.size());
    for (const Segment& segment : segments_) {
      const std::vector<Column> own = training::columns_of(description_, segment, columns, scalings);
      for (std::size_t c = 0; c < chosen.size(); ++c) {
        const auto& raw = series.values.columns[chosen[c]];
        const bool to_come = columns == &DataDescription::inputs;
        for (Index row = segment.first; row < segment.end + (to_come ? segment.to_come : 0); ++row) {
          values[static_cast<std::size_t>(row) * chosen.size() + c] =
              data::normalise(raw[row], own[c], series.values.source(row), series.values.lines[row]);
        }
      }
    }
    return values;
  }

  void scale_by_changes() {
    const auto& [inputs, targets, known, parts] = source_.columns;
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (std::ranges::find(inputs, targets[c]) == inputs.end()) continue;
      Column& column = description_.targets[c];
      auto seen = data::values_of(table_rows(), targets[c], SeriesPart::training, column.logarithm);
      for (std::size_t i = 0; i < seen.size() && !description_.series.groups.empty(); ++i) {
        const Scaling& own = description_.series.groups[segments_[i].group].targets[c];
        for (double& value : seen[i]) value = (value - own.mean) / own.scale;
      }
      data::fit_changes(column, seen, description_.series.horizon);
    }
  }

  void take_fingerprint() {
    const auto horizon = static_cast<std::uint64_t>(description_.series.horizon);
    for (const auto* values : {&inputs_, &targets_}) {
      fingerprint_ = data::fingerprint(data::bytes_of(*values), fingerprint_ + horizon);
    }
    for (const Segment& segment : segments_) {
      fingerprint_ = data::fingerprint("segment", fingerprint_ + static_cast<std::uint64_t>(segment.training_end));
    }
  }

  /// A segment's first row starts anew, wherever a batch meets it.
  void mark_starts(const std::vector<Index>& rows, Example& example) const {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] <= 0 || segment_of(rows[i]).first != rows[i]) continue;
      example.reset.resize(rows.size(), 0);
      example.reset[i] = 1;
    }
  }

  /// [rows, targets], or empty if all targets are known.
  void keep_unknown() {
    const std::vector<std::size_t>& targets = source_.columns.targets;
    for (std::size_t c = 0; c < targets.size(); ++c) {
      const auto& unknown = table_rows().values.filled[targets[c]];
      unknown_.resize(std::max(unknown_.size(), unknown.size() * targets.size()), 0);
      for (std::size_t row = 0; row < unknown.size(); ++row) unknown_[row * targets.size() + c] = unknown[row];
    }
  }

  /// Inputs that are no values: where a date stands in its cycles, and whether a value was missing.
  void add_features(const DataDescription* origin) {
    const CalendarOptions& options = source_.options.calendar;
    std::vector<data::FeatureValues> features;
    if (table_rows().calendar) {
      data::Calendar calendar = *table_rows().calendar;
      const std::string& name = table().header().names()[calendar.column];
      if (calendar.rises() && options.read) {
        data::choose_cycles(calendar, options,
                            {targets_, static_cast<Index>(description_.targets.size()), table_rows().calendar->seconds,
                             calendar.dates.step, segments_, [&](Index row, Index c) { return is_known(row, c); }});
        // To say when rows were and when those behind them are, whether or not the model reads dates.
        description_.series.row_dates = calendar.dates;
        description_.series.row_dates.column = name;
      }
      if (calendar.rises()) features = data::date_features(calendar, name, segments_);
      add_reading(calendar.describe(name));
    }
    const auto& inputs = source_.columns.inputs;
    std::ranges::move(data::missing_features(table(), table_rows(), inputs, masks_, origin),
                      std::back_inserter(features));
    data::add_features(features, description_, inputs_);
  }

  void fill(const std::vector<Index>& places, Part part, Example& example) const override {
    std::vector<Index> rows = places;
    for (Index& row : rows) row = row < 0 ? row : row_of_step_[row];
    fill_rows(rows, part, example);
  }

  /// Targets that are not known, or held out, have weight 0.
  void fill_rows(const std::vector<Index>& rows, Part part, Example& example) const {
    const auto inputs = static_cast<Index>(description_.inputs.size());
    const auto targets = static_cast<Index>(description_.targets.size());
    const Index outputs = description_.output_size();
    const auto count = static_cast<Index>(rows.size());
    example.features.assign(static_cast<std::size_t>(count * inputs), 0.0f);
    example.targets.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    example.weights.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    for (Index i = 0; i < count; ++i) {
      const Index row = rows[i];
      if (row < 0) continue;
      const Segment& segment = segment_of(row);
      const Index end = part == Part::training ? segment.training_end : segment.end;
      std::copy_n(inputs_.begin() + row * inputs, inputs, example.features.begin() + i * inputs);
      const Index known = std::clamp<Index>(end - 1 - row, 0, description_.series.horizon) * targets;
      std::copy_n(targets_.begin() + (row + 1) * targets, known, example.targets.begin() + i * outputs);
      std::fill_n(example.weights.begin() + i * outputs, known, 1.0f);
      if (unknown_.empty() || !masks_) continue;
      for (Index k = 0; k < known; ++k) {
        if (unknown_[(row + 1) * targets + k] != 0) example.weights[i * outputs + k] = 0.0f;
      }
    }
  }

  SeriesSource source_;
  std::vector<Segment> segments_;
  std::vector<Index> row_of_step_;     // that training and validation read
  std::vector<std::uint8_t> unknown_;  // [rows, targets], 1 where a value is filled in; empty if none is
  bool masks_ = false;                 // what is filled in: training never asks for it
  data::SeriesPlan plan_;
  mutable std::mutex batches_guard_;
  mutable std::shared_ptr<const data::HeldOutBatches> batches_;  // of the sizes that were asked for last
  std::vector<float> inputs_;                                    // [rows, I]
  std::vector<float> targets_;                                   // [rows, targets]
};

/// Returns whether a column that is not read has a name of times; a column of rising times may count rows, too.
bool says_when(const OpenTable& table, const std::vector<std::size_t>& read) {
  const auto& names = table.header().names();
  for (std::size_t column = 0; column < table.header().width(); ++column) {
    if (std::ranges::find(read, column) != read.end()) continue;
    const std::string name = lower_case(names[column]);
    const bool zone = name.find("zone") != name.npos;
    if ((data::may_name_dates(name) && !zone) || name == "t" || name == "step" || name == "seconds") return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Dataset> open_series(const TableSources& sources, const SeriesOptions& given,
                                     const DataDescription* origin) {
  if (origin != nullptr) data::check_origin_use(*origin, "series", sources.name());
  const SeriesOptions options = origin == nullptr ? given : data::options_of(*origin, given);
  data::check_validation_fraction(options.validation_fraction);
  require(options.from_last || !options.autoregression, "autoregression goes with from_last");
  require_argument(options.season >= 0, "season", options.season, "at least 0");
  check_enum("transform", options.transform, Transform::logarithm);
  require_argument(options.horizon >= 1 && options.horizon <= 1'000'000, "horizon", options.horizon, "1 to 1000000");
  const auto shared = std::make_shared<OpenTable>(sources, options.format);
  OpenTable& table = *shared;
  OpenTable::Choice choice;
  data::SeriesColumns columns = data::find_columns(table, options, choice, origin);
  const auto series = std::make_shared<const SeriesTable>(
      data::read_series(table, columns, options, origin != nullptr ? &origin->series.row_dates : nullptr));
  if (origin == nullptr) data::drop_unseen_categories(table, *series, columns);
  SeriesSource source{shared, series, columns, options, std::nullopt};
  if (origin != nullptr) source.origin = *origin;

  auto dataset = std::make_unique<SeriesDataset>(source);
  const auto is_read = [&](const OpenTable::LeftOut& column) {
    return std::ranges::any_of(dataset->description().inputs, [&](const Column& input) {
      return input.name == table.header().names()[column.column];
    });
  };
  std::erase_if(choice.left_out, is_read);
  choice.categories = data::category_columns(dataset->description(), table.header());
  std::vector<Message> reading = table.reading(columns.inputs, choice);
  for (const auto& findings :
       {series->findings, data::sentinels(series->values, table.header().names()), dataset->reading()}) {
    reading.insert(reading.end(), findings.begin(), findings.end());
  }
  if (!columns.parts.empty()) {
    std::vector<std::string> parts;
    for (const std::size_t column : columns.parts) parts.push_back(table.header().names()[column]);
    reading.push_back(fmt::format("{} as input alone: parts of dates are not forecast", data::list_of(parts)));
  }
  if (options.calendar.read && !series->calendar && !says_when(table, columns.inputs)) {
    reading.emplace_back(std::string(rows_without_dates));
  }
  dataset->set_reading(std::move(reading));
  dataset->add_reading(data::describe_filled(series->values, series->missing));
  return dataset;
}

}  // namespace penstock
