#include "penstock/data_description.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "nn/description/with_scaling.h"

// Models, streams and datasets all ask for these sizes.
namespace penstock {

Index DataDescription::output_size() const {
  switch (task) {
    case Task::language:
      return vocabulary;
    case Task::forecast:
      return series.horizon * static_cast<Index>(targets.size());
    case Task::classify:
      break;
  }
  return static_cast<Index>(labels.classes.size());
}

DataDescription DataDescription::of_group(const Group& group) const { return GroupDescriptions(*this).of(group); }

GroupDescriptions::GroupDescriptions(const DataDescription& data) : of_any_(data) {
  of_any_.series.group_column.clear();
  of_any_.series.groups_are_files = false;
  of_any_.series.groups = {};
  for (ErrorDistribution::Ending& ending : std::exchange(of_any_.series.errors.endings, {})) {
    endings_[ending.group].push_back(std::move(ending));
  }
}

DataDescription GroupDescriptions::of(const Group& group) const {
  DataDescription result = of_any_;
  result.inputs = with_scalings(std::move(result.inputs), group.inputs);
  result.targets = with_scalings(std::move(result.targets), group.targets);
  result.series.own = group.own;
  const auto endings = endings_.find(group.name);
  if (endings != endings_.end()) result.series.errors.endings = endings->second;
  return result;
}

std::optional<std::size_t> DataDescription::input_of(std::string_view column) const {
  const auto found = std::ranges::find_if(inputs, [&](const Column& input) {
    return input.feature == Feature::value && input.ahead == 0 && input.name == column;
  });
  if (found == inputs.end()) return std::nullopt;
  return static_cast<std::size_t>(found - inputs.begin());
}

std::size_t DataDescription::now_of(const Column& later) const {
  const auto now =
      std::ranges::find_if(inputs, [&](const Column& input) { return input.ahead == 0 && input.reads_same(later); });
  require_about(now != inputs.end(), "inputs", ": {} is read ahead, but not as it is", in_quotes(later.name));
  return static_cast<std::size_t>(now - inputs.begin());
}

bool DataDescription::labels_sequences() const { return task == Task::classify && vocabulary == 0; }

bool DataDescription::forecasts_an_input() const {
  return task == Task::forecast &&
         std::ranges::any_of(targets, [&](const Column& target) { return input_of(target.name).has_value(); });
}

bool DataDescription::reads_ahead() const {
  return std::ranges::any_of(inputs, [](const Column& input) { return input.ahead > 0; });
}

std::vector<std::string> DataDescription::known_columns() const {
  std::vector<std::string> names;
  for (const Column& input : inputs) {
    if (input.ahead == 1 && std::ranges::find(names, input.name) == names.end()) names.push_back(input.name);
  }
  return names;
}

bool DataDescription::is_known_ahead(std::string_view column) const {
  return std::ranges::any_of(inputs, [&](const Column& input) { return input.ahead > 0 && input.name == column; });
}

void fill_ahead(const DataDescription& data, std::span<float> features) {
  const std::size_t width = data.inputs.size(), rows = features.size() / std::max<std::size_t>(width, 1);
  for (std::size_t to = 0; to < width; ++to) {
    const Column& input = data.inputs[to];
    if (input.ahead == 0) continue;
    const std::size_t from = data.now_of(input);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t later = std::min(row + static_cast<std::size_t>(input.ahead), rows - 1);
      features[row * width + to] = features[later * width + from];
    }
  }
}

Index DataDescription::input_size() const { return vocabulary > 0 ? 1 : static_cast<Index>(inputs.size()); }

}  // namespace penstock
