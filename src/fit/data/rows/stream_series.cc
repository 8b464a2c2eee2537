#include "data/rows/stream_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "data/column_scaling.h"
#include "nn/description/with_scaling.h"

namespace penstock::data {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

/// The ends of what a model can compute with, as Column::normal() counts: logarithms where there are any.
double lower_end(const Scaling& scaling) { return scaling.mean - Column::furthest * scaling.scale; }
double upper_end(const Scaling& scaling) { return scaling.mean + Column::furthest * scaling.scale; }

}  // namespace

TrainedSeries::TrainedSeries(const DataDescription& data) {
  if (data.series.groups.empty()) return;
  ranges_.resize(data.inputs.size());
  for (std::size_t i = 0; i < data.inputs.size(); ++i) {
    if (data.inputs[i].feature != Feature::value) continue;  // all others are the same in every series
    const auto scaling = [i](const Group& group) { return group.inputs[i]; };
    const auto lowest =
        std::ranges::min_element(data.series.groups, {}, [&](const Group& group) { return lower_end(scaling(group)); });
    const auto highest =
        std::ranges::max_element(data.series.groups, {}, [&](const Group& group) { return upper_end(scaling(group)); });
    ranges_[i] = {with_scaling(data.inputs[i], scaling(*lowest)), with_scaling(data.inputs[i], scaling(*highest))};
  }
  const auto count = static_cast<double>(data.series.groups.size());
  targets_.assign(data.targets.size(), {0.0, 0.0});
  for (const Group& group : data.series.groups) {
    for (std::size_t c = 0; c < targets_.size(); ++c) {
      targets_[c].mean += group.targets[c].mean / count;
      targets_[c].scale += group.targets[c].scale / count;
    }
  }
}

bool TrainedSeries::can_read(double raw, std::size_t input) const {
  if (ranges_.empty()) return false;
  const auto& [lowest, highest] = ranges_[input];
  return lowest.can_read(raw) || highest.can_read(raw) || (lowest.normal(raw) > 0.0 && highest.normal(raw) < 0.0);
}

StreamSeries::StreamSeries(const DataDescription& data, Group of, bool trained)
    : group(std::move(of)),
      inputs(trained && !data.series.groups.empty() ? with_scalings(data.inputs, group.inputs) : data.inputs),
      settled(trained),
      values(inputs.size()),
      trained_(trained),
      begun_(inputs.size(), trained) {
  restart();
}

void StreamSeries::restart() {
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Categories are not scaled: what is not known of them is none.
    values[i] = settled || inputs[i].feature == Feature::category ? 0.0f : kUnknown;
  }
  date.reset();
}

float StreamSeries::normalised(double raw, std::size_t input, const Column& column, const std::string& source,
                               Index line) {
  if (column.feature == Feature::category) return static_cast<float>(column.normal(raw));
  if (!begun_[input]) {
    group.inputs[input] = {column.logarithm && raw > 0.0 ? std::log(raw) : raw, 1.0};
    inputs[input] = with_scaling(column, group.inputs[input]);
    begun_[input] = true;
  }
  // In a series that training did not see, the first scale is too rough to judge which values are too far.
  return normalise(raw, inputs[input], source, line, trained_ ? Column::furthest : std::numeric_limits<float>::max());
}

bool StreamSeries::is_too_far(double raw, std::size_t input, const DataDescription& data,
                              const TrainedSeries& others) const {
  const Column& column = data.inputs[input];
  if (column.feature != Feature::value || (column.logarithm && raw <= 0.0)) return false;
  return trained_ ? !inputs[input].can_read(raw) : !others.can_read(raw, input);
}

void StreamSeries::settle(const DataDescription& data, const TrainedSeries& others, std::span<float> features,
                          Index count, const std::string& source) {
  const std::size_t width = data.inputs.size();
  require(features.size() % width == 0 && count >= 1, "features must be rows of {} values, and count at least 1",
          width);
  const std::size_t rows = std::min(features.size() / width, static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < width; ++i) {
    if (data.inputs[i].feature == Feature::value) scale_by(i, data.inputs[i], features, rows, source);
  }
  for (std::size_t i = 0; i < width; ++i) {
    if (data.inputs[i].ahead == 0) continue;
    group.inputs[i] = group.inputs[data.now_of(data.inputs[i])];
  }
  scale_targets(data, others);
  settled = true;
}

/// Sets the scale of an input by its known values in the first `rows`.
void StreamSeries::scale_by(std::size_t input, const Column& column, std::span<float> features, std::size_t rows,
                            const std::string& source) {
  const std::size_t width = inputs.size();
  const Column before = inputs[input];
  std::vector<double> known;
  for (std::size_t row = 0; row < rows; ++row) {
    const float value = features[row * width + input];
    if (!std::isnan(value)) known.push_back(static_cast<double>(value) * before.scale + before.mean);
  }
  if (!known.empty()) {
    const Column fitted = fit_column(column.name, known, source);
    group.inputs[input] = {fitted.mean, fitted.scale};
    inputs[input] = with_scaling(column, group.inputs[input]);
    begun_[input] = true;
  }
  const auto rescale = [&](float& value) {
    const double raw = static_cast<double>(value) * before.scale + before.mean;
    value = std::isnan(value) ? 0.0f : static_cast<float>((raw - inputs[input].mean) / inputs[input].scale);
  };
  for (std::size_t row = 0; row < features.size() / width; ++row) rescale(features[row * width + input]);
  rescale(values[input]);
}

/// A target that is no input, of which a stream says nothing, is scaled as in the mean of the series of training.
void StreamSeries::scale_targets(const DataDescription& data, const TrainedSeries& others) {
  group.targets.clear();
  for (std::size_t c = 0; c < data.targets.size(); ++c) {
    const auto input = data.input_of(data.targets[c].name);
    group.targets.push_back(input ? group.inputs[*input] : others.targets()[c]);
  }
}

SeriesSet::SeriesSet(const DataDescription& data) : data_(data), trained_(data) {
  if (data.series.group_column.empty()) current_ = &all_.try_emplace("", data, Group(), true).first->second;
  for (const Group& group : data.series.groups) add(group);
}

void SeriesSet::start(const std::string& name) {
  const Group unseen{.name = name, .inputs = {}, .targets = {}};
  current_ = &all_.try_emplace(name, data_, unseen, false).first->second;
  if (current_->group.inputs.empty()) current_->group.inputs.resize(data_.inputs.size());
}

void SeriesSet::add(const Group& group) {
  require_about(group.inputs.size() == data_.inputs.size() && group.targets.size() == data_.targets.size(), "group",
                " must have a scaling of each column");
  all_.try_emplace(group.name, data_, group, true);
}

void SeriesSet::restart() {
  for (auto& [name, series] : all_) series.restart();
}

const Group& SeriesSet::settle(const std::string& name, std::span<float> features, Index count,
                               const std::string& source) {
  const auto found = all_.find(name);
  require(found != all_.end(), "name: no row of {} has been read", in_quotes(name));
  found->second.settle(data_, trained_, features, count, source);
  return found->second.group;
}

std::map<std::string, RowReader::LastRow> SeriesSet::last_rows() const {
  std::map<std::string, RowReader::LastRow> rows;
  for (const auto& [name, series] : all_) {
    if (series.settled) rows[name] = {.values = series.values, .date = series.date};
  }
  return rows;
}

void SeriesSet::set_last_rows(const std::map<std::string, RowReader::LastRow>& rows) {
  for (const auto& [name, row] : rows) {
    const std::size_t size = data_.inputs.size();
    require(row.values.size() == size, "rows: the last one must have {} values, not {}", size, row.values.size());
    const auto found = all_.find(name);
    if (found == all_.end()) continue;
    found->second.values = row.values;
    found->second.date = row.date;
  }
}

}  // namespace penstock::data
