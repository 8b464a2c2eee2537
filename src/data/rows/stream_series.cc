#include "data/rows/stream_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/normalise.h"
#include "nn/model/with_scaling.h"

namespace penstock::data {
namespace {

constexpr float unknown = std::numeric_limits<float>::quiet_NaN();

}  // namespace

StreamSeries::StreamSeries(const DataDescription& data, Group of, bool trained)
    : group(std::move(of)),
      inputs(trained && !data.groups.empty() ? with_scalings(data.inputs, group.inputs) : data.inputs),
      settled(trained),
      values(inputs.size()),
      trained_(trained),
      begun_(inputs.size(), trained) {
  restart();
}

void StreamSeries::restart() {
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Categories are not scaled: what is not known of them is none.
    values[i] = settled || inputs[i].feature == Feature::category ? 0.0f : unknown;
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
  // Of another series the first scales are no measure of what is far.
  return normalise(raw, inputs[input], source, line, trained_ ? Column::furthest : std::numeric_limits<float>::max());
}

bool StreamSeries::is_too_far(double raw, std::size_t input, const DataDescription& data) const {
  const Column& column = data.inputs[input];
  if (column.feature != Feature::value || (column.logarithm && raw <= 0.0)) return false;
  if (trained_) return !inputs[input].can_read(raw);
  return std::ranges::none_of(
      data.groups, [&](const Group& trained) { return with_scaling(column, trained.inputs[input]).can_read(raw); });
}

void StreamSeries::settle(const DataDescription& data, std::span<float> features, Index count,
                          const std::string& source) {
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
  scale_targets(data);
  settled = true;
}

/// By what is known of an input in the first `rows`.
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
void StreamSeries::scale_targets(const DataDescription& data) {
  group.targets.clear();
  for (std::size_t c = 0; c < data.targets.size(); ++c) {
    const auto input = std::ranges::find_if(data.inputs, [&](const Column& column) {
      return column.feature == Feature::value && column.name == data.targets[c].name;
    });
    if (input != data.inputs.end()) {
      group.targets.push_back(group.inputs[static_cast<std::size_t>(input - data.inputs.begin())]);
      continue;
    }
    Scaling mean{0.0, 0.0};
    for (const Group& trained : data.groups) {
      mean.mean += trained.targets[c].mean / static_cast<double>(data.groups.size());
      mean.scale += trained.targets[c].scale / static_cast<double>(data.groups.size());
    }
    group.targets.push_back(mean);
  }
}

}  // namespace penstock::data
