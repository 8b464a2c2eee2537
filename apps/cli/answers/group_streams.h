#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "answers/input_findings.h"
#include "answers/stream_state.h"
#include "penstock/interval_tracker.h"
#include "penstock/stream.h"

namespace penstock::cli {

/// The series of a stream: one, or many whose rows say which of them they are of. One session answers all but those
/// with a forecast of their own: it goes on from the state of the series that a row is of.
class GroupStreams {
 public:
  GroupStreams(Session& session, const Model& model, const Execution& execution);

  /// Takes in the row that was read last. A series that training did not see is scaled by its first rows: until there
  /// are enough of them there is nothing to push.
  struct WaitingRows {
    std::vector<float> features;        ///< [rows, I]
    std::vector<double> target_values;  ///< [rows, targets], as RowReader has them.
  };
  struct Ready {
    const DataDescription& data;  ///< With the scaling of the series.
    IntervalTracker& tracker;     ///< State of its intervals.
    Session& session;             ///< To push its rows to.
    WaitingRows rows;             ///< This one, behind those that it had to wait for.
  };
  std::optional<Ready> take(Rows& rows);

  /// All series start anew.
  void reset_all();
  /// Continues from a saved state, and tells `rows` the scaling of series that training did not see.
  void restore(const StreamState& state, Rows& rows);
  void save(StreamState& state);

 private:
  struct Series {
    std::optional<DataDescription> data;  // none: not scaled yet
    std::optional<IntervalTracker> tracker;
    std::optional<Session> own;    // of a series with a forecast of its own
    std::vector<float> intervals;  // state of a tracker that is not there yet
    std::optional<Group> scaling;  // of one that training did not see
    std::vector<float> state;      // when another one is in the session
    WaitingRows waiting;
    std::size_t past = 0;  // waiting rows that only say how the series is scaled: it started anew behind them
  };

  static WaitingRows take_in(const Rows& row, WaitingRows behind);
  bool grouped() const { return !data_.series.group_column.empty(); }
  Index rows_to_scale() const;
  Session& session_of(Series& series) { return series.own ? *series.own : session_; }
  Ready switch_to(Series& next, WaitingRows rows);
  /// Sets the description of a series, whose scaling is known from now on.
  void describe(Series& series, DataDescription data);

  Session& session_;
  const Model& model_;
  Execution execution_;
  const DataDescription& data_;
  GroupDescriptions descriptions_;
  std::map<std::string, Series> all_;  // a single one has no name
  Series* in_session_ = nullptr;
};

}  // namespace penstock::cli
