#include "answers/group_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

GroupStreams::GroupStreams(Session& session, const Model& model, const Execution& execution)
    : session_(session), model_(model), execution_(execution), data_(model.data()), descriptions_(data_) {
  if (grouped()) return;
  in_session_ = &all_[""];
  describe(*in_session_, data_);
}

/// Whose mean and size tell how a series is scaled: at least a season.
Index GroupStreams::rows_to_scale() const {
  constexpr Index fewest = 8;
  return std::max(fewest, data_.series.season);
}

GroupStreams::Ready GroupStreams::switch_to(Series& next, WaitingRows rows) {
  Session& session = session_of(next);
  if (in_session_ != &next) {
    if (in_session_ != nullptr) in_session_->state = kept_state(session_of(*in_session_));
    if (next.state.empty()) {
      session.reset();
    } else {
      session.restore(next.state);
    }
    in_session_ = &next;
  }
  return {*next.data, *next.tracker, session, std::move(rows)};
}

void GroupStreams::describe(Series& series, DataDescription data) {
  series.data = std::move(data);
  if (const auto own = model_.of_series(*series.data)) series.own.emplace(*own, execution_);
  series.tracker.emplace(*series.data);
  if (!series.intervals.empty()) series.tracker->restore(series.intervals);
}

GroupStreams::WaitingRows GroupStreams::take_in(const Rows& row, WaitingRows behind) {
  const auto values = row.target_values();
  behind.features.insert(behind.features.end(), row.features().begin(), row.features().end());
  behind.target_values.insert(behind.target_values.end(), values.begin(), values.end());
  return behind;
}

std::optional<GroupStreams::Ready> GroupStreams::take(Rows& rows) {
  const std::string name = grouped() ? rows.reader().group().name : "";
  Series& series = all_[name];
  if (!grouped() || rows.reader().knows_group()) {
    if (!series.data) describe(series, descriptions_.of(rows.reader().group()));
    return switch_to(series, take_in(rows, {}));
  }
  if (series.waiting.features.empty()) {
    const Index lead = rows_to_scale() - 1;
    say(fmt::format("note: {} is not in the training data: its first {} determine{} its scale and get{} no forecast\n",
                    printable(name), lead == 1 ? "row" : with_commas(lead) + " rows", lead == 1 ? "s" : "",
                    lead == 1 ? "s" : ""));
  }
  series.waiting = take_in(rows, std::move(series.waiting));
  std::vector<float>& features = series.waiting.features;
  const auto count = static_cast<Index>(features.size() / rows.features().size());
  if (count < rows_to_scale()) return std::nullopt;
  series.scaling = rows.reader().settle_group(name, features, count);
  describe(series, descriptions_.of(*series.scaling));
  std::vector<double>& values = series.waiting.target_values;
  const auto past = static_cast<std::ptrdiff_t>(series.past);
  features.erase(features.begin(), features.begin() + past * data_.input_size());
  values.erase(values.begin(), values.begin() + past * static_cast<std::ptrdiff_t>(data_.targets.size()));
  return switch_to(series, std::exchange(series.waiting, {}));
}

void GroupStreams::reset_all() {
  session_.reset();
  for (auto& [name, series] : all_) {
    if (series.own) series.own->reset();
    series.state.clear();
    series.intervals.clear();
    if (series.tracker) series.tracker->reset();
    series.past = series.waiting.features.size() / static_cast<std::size_t>(data_.input_size());
  }
}

void GroupStreams::restore(const StreamState& state, Rows& rows) {
  if (!grouped()) return in_session_->tracker->restore(state.intervals);
  for (const auto& [name, saved] : state.groups) {
    Series& series = all_[name];
    series.state = saved.state;
    series.intervals = saved.intervals;
    const auto known = std::ranges::find(data_.series.groups, name, &Group::name);
    if (known != data_.series.groups.end() && known->own.lags > 0) describe(series, descriptions_.of(*known));
    if (!saved.state.empty()) state.restore(session_of(series), saved.state);
    if (!saved.scaling) continue;
    rows.reader().add_group(*saved.scaling);
    series.scaling = saved.scaling;
  }
}

void GroupStreams::save(StreamState& state) {
  if (!grouped()) {
    state.intervals = in_session_->tracker->state();
    return;
  }
  if (in_session_ != nullptr) in_session_->state = kept_state(session_of(*in_session_));
  for (const auto& [name, series] : all_) {
    if (!series.state.empty() || series.scaling) {
      state.groups[name] = {.state = series.state,
                            .intervals = series.tracker ? series.tracker->state() : series.intervals,
                            .scaling = series.scaling};
    }
    if (series.waiting.features.empty()) continue;
    say(fmt::format("note: {} had too few rows to determine its scale and starts again\n", printable(name)));
  }
}

}  // namespace penstock::cli
