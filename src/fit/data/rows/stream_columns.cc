#include "data/rows/stream_columns.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

StreamColumns::StreamColumns(const DataDescription& data, StreamOpening opened, const std::string& sequence_column)
    : opening(std::move(opened)) {
  require(data.vocabulary == 0, "this model reads tokens, not rows of a CSV file");
  find_inputs(data);
  find_known(data);
  find_dates(data);
  find_group(data);
  if (!sequence_column.empty()) sequence = opening.header.find(sequence_column);
}

/// Categories get columns of their own.
void StreamColumns::find_inputs(const DataDescription& data) {
  for (const Column& input : data.inputs) {
    const auto position = opening.header.find(input.name);
    if (!position) {
      fail(ErrorCode::bad_input, "{}:1:1: the model reads a column {}, but the header has only {}", source(),
           in_quotes(input.name), opening.header.list());
    }
    inputs.push_back(*position);
  }
  std::vector<std::size_t> places;
  for (CategoryColumn& column : category_columns(data, opening.header)) {
    std::ranges::copy(categories.add(opening.header, std::move(column)), std::back_inserter(places));
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (data.inputs[i].feature == Feature::category && data.inputs[i].ahead == 0) inputs[i] = places[next++];
  }
}

void StreamColumns::find_known(const DataDescription& data) {
  for (const Column& target : data.targets) target_inputs.push_back(data.input_of(target.name));
  for (const Column& input : data.inputs) known_ahead.push_back(data.is_known_ahead(input.name));
  if (!data.reads_ahead()) return;
  for (const Column& target : data.targets) {
    const auto position = opening.header.find(target.name);
    if (position) targets.push_back(*position);
  }
  if (targets.size() < data.targets.size()) targets.clear();
}

void StreamColumns::find_dates(const DataDescription& data) {
  for (std::size_t i = 0; i < inputs.size() && !dated_input; ++i) {
    if (data.inputs[i].reads_dates()) dated_input = {inputs[i], data.inputs[i].dates};
  }
  const RowDates& dates = data.series.row_dates;
  if (dates.column.empty()) return;
  const auto is_read = [&](const Column& input) { return input.reads_dates() && input.name == dates.column; };
  // An input that reads the dates says when rows were; nobody needs to parse them twice.
  if (dates.irregular == Irregular::ignore && std::ranges::any_of(data.inputs, is_read)) return;
  date = opening.header.find(dates.column);
  if (date || dates.irregular == Irregular::ignore) return;
  fail(ErrorCode::bad_input, "{}:1:1: column {} says when a row was, but the header has only {}", source(),
       in_quotes(dates.column), opening.header.list());
}

void StreamColumns::find_group(const DataDescription& data) {
  if (data.series.group_column.empty() || data.series.groups_are_files) return;
  group = opening.header.find(data.series.group_column);
  if (group) return;
  fail(ErrorCode::bad_input, "{}:1:1: column {} names the series of a row, but the header has only {}", source(),
       in_quotes(data.series.group_column), opening.header.list());
}

}  // namespace penstock::data
