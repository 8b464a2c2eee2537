#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "penstock/data/rows.h"
#include "penstock/interval_tracker.h"
#include "penstock/sequence_run.h"

/// Answers of a model for the rows of a table.
namespace penstock {

/// Forecasts from the rows of one series, which arrive one by one and are computed many at once. `Note` is what the
/// caller wants to know of a row when its forecasts are there.
template <class Note>
class ForecastRun {
 public:
  /// Takes a row: its raw targets, as they were added, its forecasts [O], normalised, and the tracker behind the row.
  using Visit = std::function<void(const Note& note, std::span<const double> values, std::span<const float> forecasts,
                                   const IntervalTracker& tracker)>;

  /// Starts a series. `data` has its scaling. The model must outlive this object.
  ForecastRun(const Model& model, const DataDescription& data, const Execution& execution, Visit visit)
      : own_(model.of_series(data)),
        sequence_(own_ ? *own_ : model, execution),
        tracker_(data),
        visit_(std::move(visit)) {}

  /// Adds a row: its normalised features [I] and raw targets [targets]. Visits the rows before it once they are many.
  void add(std::span<const float> features, std::span<const double> values, Note note) {
    if (sequence_.waiting() == SequenceRun::piece) finish();
    sequence_.add(features);
    features_.insert(features_.end(), features.begin(), features.end());
    values_.insert(values_.end(), values.begin(), values.end());
    notes_.push_back(std::move(note));
  }
  /// Visits all rows that were added and not visited.
  void finish() {
    if (notes_.empty()) return;
    const std::span<const float> forecasts = sequence_.run(), features = features_;
    const std::span<const double> values = values_;
    const auto part = [&](auto all, std::size_t row) {
      const std::size_t width = all.size() / notes_.size();
      return all.subspan(row * width, width);
    };
    for (std::size_t row = 0; row < notes_.size(); ++row) {
      tracker_.add(part(features, row), part(forecasts, row), part(values, row));
      visit_(notes_[row], part(values, row), part(forecasts, row), tracker_);
    }
    notes_.clear();
    features_.clear();
    values_.clear();
  }

 private:
  std::optional<Model> own_;
  SequenceRun sequence_;
  IntervalTracker tracker_;
  Visit visit_;
  std::vector<Note> notes_;  // of the rows that wait
  std::vector<float> features_;
  std::vector<double> values_;
};

/// Forecasts from each of the first `count` rows of a series. Calls visit(row, distribution, forecasts), where
/// `distribution` is that of the errors so far, and `forecasts` [O] are normalised.
template <class Visit>
void forecast_rows(const Model& model, const GroupedRows& series, Index count, const Execution& execution,
                   const Visit& visit) {
  const auto part = [](const auto& values, Index row, std::size_t width) {
    return std::span(values).subspan(static_cast<std::size_t>(row) * width, width);
  };
  ForecastRun<Index> run(model, series.data, execution, [&](Index row, auto, auto forecasts, const auto& tracker) {
    visit(row, tracker.distribution(), forecasts);
  });
  for (Index row = 0; row < count; ++row) {
    run.add(part(series.features, row, static_cast<std::size_t>(series.data.input_size())),
            part(series.target_values, row, series.data.targets.size()), row);
  }
  run.finish();
}

/// Labels sequences. Calls seen() after each row is read, and answer(logits) with the logits [classes] behind the last
/// row of each sequence (for_each_sequence()).
template <class Seen, class Answer>
void label_rows(const Model& model, Rows& rows, const Execution& execution, const Seen& seen, const Answer& answer) {
  SequenceRun sequence(model, execution);
  const auto add = [&] {
    sequence.add_for_last(rows.features());
    seen();
  };
  const auto finish = [&] {
    if (sequence.waiting() > 0) answer(sequence.end());
  };
  for_each_sequence(rows, add, finish);
}

}  // namespace penstock
