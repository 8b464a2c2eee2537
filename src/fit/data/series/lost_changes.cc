#include "data/series/lost_changes.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quote.h"

namespace penstock::data {
namespace {

constexpr double tenth = 0.1;  // of a change, by which it may be off in what is seen of it

/// The changes of a column from row to row, and which of them a model sees.
struct Changes {
  Index all = 0, lost = 0;
  double farthest = -1.0;  // of its values from the mean, normalised
  Index place = 0;         // its row
};

Changes changes_of(const DataDescription& description, const SeriesTable& series, std::size_t position,
                   std::size_t input, std::size_t inputs, std::span<const float> read) {
  Changes result;
  const std::vector<double>& raw = series.values.columns[position];
  const auto seen = [&](Index row) {
    return static_cast<double>(read[static_cast<std::size_t>(row) * inputs + input]);
  };
  for (const training::Segment& segment : series.segments) {
    const Column column = training::columns_of(description, segment, &DataDescription::inputs, &Group::inputs)[input];
    for (Index row = segment.first; row < segment.end; ++row) {
      if (std::abs(seen(row)) > result.farthest) result.farthest = std::abs(seen(row)), result.place = row;
      if (row == segment.first || raw[row] == raw[row - 1]) continue;
      // Not of normalised values, of which even doubles may be too coarse.
      const double difference =
          column.logarithm ? std::log(raw[row]) - std::log(raw[row - 1]) : raw[row] - raw[row - 1];
      const double change = difference / column.scale;
      ++result.all;
      if (!(std::abs(seen(row) - seen(row - 1) - change) <= tenth * std::abs(change))) ++result.lost;
    }
  }
  return result;
}

}  // namespace

std::vector<Message> lost_changes(const DataDescription& description, const OpenTable& table, const SeriesTable& series,
                                  const std::vector<std::size_t>& inputs, std::span<const float> read) {
  std::vector<Message> findings;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto [all, lost, farthest, place] = changes_of(description, series, inputs[i], i, inputs.size(), read);
    if (2 * lost <= all) continue;
    findings.push_back(fmt::format(
        "column {}: {} in line {} of {} is so far from the other values that rounding distorts {} of {} changes from "
        "row to row: leave it out, or learn logarithms",
        in_quotes(table.header().names()[inputs[i]]), series.values.columns[inputs[i]][place],
        series.values.lines[place], series.values.source(place), lost, all));
  }
  return findings;
}

}  // namespace penstock::data
