#include "group_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "terminal.h"
#include "units.h"

namespace penstock::cli {

/// Whose mean and size tell how a series is scaled: at least a season.
Index GroupStreams::rows_to_scale() const {
  constexpr Index fewest = 8;
  return std::max(fewest, data_.season);
}

void GroupStreams::switch_to(const std::string& name) {
  Series& next = all_[name];
  if (in_session_ == &next) return;
  if (in_session_ != nullptr) in_session_->state = session_.state();
  if (next.state.empty()) {
    session_.reset();
  } else {
    session_.restore(next.state);
  }
  in_session_ = &next;
}

void GroupStreams::describe(Series& series, DataDescription data) {
  series.data = std::move(data);
  series.tracker.emplace(*series.data);
  if (!series.intervals.empty()) series.tracker->restore(series.intervals);
}

std::optional<GroupStreams::Ready> GroupStreams::take(Rows& rows) {
  const std::string name = rows.reader().group().name;
  const bool known = rows.reader().knows_group();
  Series& series = all_[name];
  if (known) {
    if (!series.data) describe(series, data_.of_group(rows.reader().group()));
    switch_to(name);
    return Ready{*series.data, *series.tracker, rows.features()};
  }
  if (series.waiting.empty()) {
    say(fmt::format("note: training did not see {}: its first {} rows say how it is scaled, and get no forecast\n",
                    printable(name), rows_to_scale() - 1));
  }
  series.waiting.insert(series.waiting.end(), rows.features().begin(), rows.features().end());
  const auto count = static_cast<Index>(series.waiting.size() / rows.features().size());
  if (count < rows_to_scale()) return std::nullopt;
  series.scaling = rows.reader().settle_group(name, series.waiting, count);
  describe(series, data_.of_group(*series.scaling));
  switch_to(name);
  return Ready{*series.data, *series.tracker, std::exchange(series.waiting, {})};
}

void GroupStreams::reset_all() {
  session_.reset();
  for (auto& [name, series] : all_) {
    series.state.clear();
    series.intervals.clear();
    if (series.tracker) series.tracker->reset();
  }
}

void GroupStreams::restore(const StreamState& state, Rows& rows) {
  for (const auto& [name, saved] : state.groups) {
    Series& series = all_[name];
    series.state = saved.state;
    series.intervals = saved.intervals;
    if (!saved.scaling) continue;
    rows.reader().add_group(*saved.scaling);
    series.scaling = saved.scaling;
  }
}

void GroupStreams::save(StreamState& state) {
  if (in_session_ != nullptr) in_session_->state = session_.state();
  for (const auto& [name, series] : all_) {
    if (!series.state.empty()) {
      state.groups[name] = {.state = series.state,
                            .intervals = series.tracker ? series.tracker->state() : series.intervals,
                            .scaling = series.scaling};
    }
    if (series.waiting.empty()) continue;
    say(fmt::format("note: {} had too few rows to be scaled, and begins anew\n", printable(name)));
  }
}

}  // namespace penstock::cli
