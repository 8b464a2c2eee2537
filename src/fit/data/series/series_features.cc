#include "data/series/series_features.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "data/model_to_continue.h"

namespace penstock::data {

using training::Segment;

namespace {

/// Rows [rows, before] with room for more columns: [rows, width].
std::vector<float> widened(std::span<const float> values, std::size_t before, std::size_t width) {
  std::vector<float> result(values.size() / before * width, 0.0f);
  for (std::size_t row = 0; row < values.size() / before; ++row) {
    std::ranges::copy(values.subspan(row * before, before), result.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
  return result;
}

}  // namespace

std::vector<FeatureValues> date_features(const Calendar& calendar, const std::string& name,
                                         const std::vector<Segment>& segments) {
  std::vector<FeatureValues> features;
  for (const Feature feature : calendar.features) {
    Column column{.name = name, .feature = feature, .dates = calendar.dates.form};
    features.push_back({std::move(column), calendar.seconds});
  }
  if (calendar.dates.irregular != Irregular::elapsed) return features;
  std::vector<double> elapsed(calendar.seconds.size(), 1.0);  // the first row of a series is none too late
  for (const Segment& segment : segments) {
    for (Index row = segment.first + 1; row < segment.end + segment.to_come; ++row) {
      elapsed[row] = calendar.elapsed(row);
    }
  }
  Column column{.name = name, .feature = Feature::elapsed, .dates = calendar.dates.form};
  features.push_back({std::move(column), std::move(elapsed)});
  return features;
}

std::vector<FeatureValues> missing_features(const OpenTable& table, const SeriesTable& series,
                                            const std::vector<std::size_t>& inputs, bool masks,
                                            const DataDescription* origin) {
  const auto& names = table.header().names();
  std::vector<FeatureValues> features;
  for (const std::size_t input : inputs) {
    if (table.header().category(input) != nullptr) continue;  // where no text is, is no category
    const auto& unknown = series.values.filled[input];
    const bool found = masks && std::ranges::find(unknown, 1) != unknown.end();
    if (origin == nullptr ? !found : !reads(*origin, names[input], Feature::missing)) continue;
    std::vector<double> values(static_cast<std::size_t>(series.rows()), 0.0);
    for (std::size_t row = 0; row < unknown.size(); ++row) {
      if (unknown[row] != 0) values[row] = std::nan("");
    }
    features.push_back({{.name = names[input], .feature = Feature::missing}, std::move(values)});
  }
  return features;
}

void add_features(const std::vector<FeatureValues>& features, DataDescription& description,
                  std::vector<float>& inputs) {
  if (features.empty()) return;
  const std::size_t before = description.inputs.size(), width = before + features.size();
  inputs = widened(inputs, before, width);
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto& [column, values] = features[i];
    for (std::size_t row = 0; row < inputs.size() / width; ++row) {
      inputs[row * width + before + i] = static_cast<float>(column.normal(values[row]));
    }
    description.inputs.push_back(column);
    for (Group& group : description.series.groups) group.inputs.emplace_back();
  }
}

void add_ahead(const std::vector<std::size_t>& known, const std::vector<Segment>& segments,
               DataDescription& description, std::vector<float>& inputs) {
  const std::size_t before = description.inputs.size();
  for (const std::size_t input : known) {
    Column later = description.inputs[input];
    for (later.ahead = 1; later.ahead <= description.series.horizon; ++later.ahead) {
      description.inputs.push_back(later);
      for (Group& group : description.series.groups) group.inputs.push_back(group.inputs[input]);
    }
  }
  const std::size_t width = description.inputs.size();
  if (width == before) return;
  inputs = widened(inputs, before, width);
  for (const Segment& segment : segments) {
    const auto all = static_cast<std::size_t>(segment.rows() + segment.to_come);
    fill_ahead(description, std::span(inputs).subspan(static_cast<std::size_t>(segment.first) * width, all * width));
  }
}

}  // namespace penstock::data
