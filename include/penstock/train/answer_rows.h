#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "penstock/data/rows.h"
#include "penstock/sequence_run.h"
#include "penstock/spread_tracker.h"

/// Answers of a model for the rows of a table.
namespace penstock {

/// Forecasts from each of the first `count` rows of a series. Calls visit(row, spread, forecasts), where `spread` is
/// that of the errors so far, and `forecasts` [O] are normalised.
template <class Visit>
void forecast_rows(const Model& model, const GroupedRows& series, Index count, const Execution& execution,
                   const Visit& visit) {
  const auto row_of = [](const auto& values, Index row, std::size_t width) {
    return std::span(values).subspan(static_cast<std::size_t>(row) * width, width);
  };
  const auto inputs = static_cast<std::size_t>(series.data.input_size()), targets = series.data.targets.size(),
             outputs = static_cast<std::size_t>(series.data.output_size());
  SequenceRun sequence(model, execution);
  SpreadTracker tracker(series.data);
  for (Index first = 0; first < count; first += SequenceRun::piece) {
    const Index end = std::min(count, first + SequenceRun::piece);
    for (Index row = first; row < end; ++row) sequence.add(row_of(series.features, row, inputs));
    const std::span<const float> forecasts = sequence.run();
    for (Index row = first; row < end; ++row) {
      const auto own = row_of(forecasts, row - first, outputs);
      tracker.add(row_of(series.features, row, inputs), own, row_of(series.target_values, row, targets));
      visit(row, tracker.spread(), own);
    }
  }
}

/// Labels sequences. Calls seen() after each row is read, and answer(logits) with the logits [classes] behind the last
/// row of each sequence (for_each_sequence()).
template <class Seen, class Answer>
void label_rows(const Model& model, Rows& rows, const Execution& execution, const Seen& seen, const Answer& answer) {
  SequenceRun sequence(model, execution);
  const auto add = [&] {
    if (sequence.waiting() == SequenceRun::piece) sequence.run();
    sequence.add(rows.features());
    seen();
  };
  const auto finish = [&] {
    if (sequence.waiting() == 0) return;
    answer(sequence.run().last(model.data().labels.classes.size()));
    sequence.restart();
  };
  for_each_sequence(rows, add, finish);
}

}  // namespace penstock
