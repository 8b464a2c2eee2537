#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "options/output_lock.h"
#include "penstock/data/row_reader.h"
#include "penstock/interval_tracker.h"
#include "penstock/stream.h"

namespace penstock::cli {

/// Returns the state of a session to be kept. A session whose state is not finite is reset, with a note.
std::vector<float> kept_state(Session& session);

/// The file of `penstock stream --state`: what a model remembers, so that a stream may stop and go on. It belongs to
/// the weights it was made with.
class StreamState {
 public:
  /// Reads the file if there is one, and keeps other streams from it. Throws Error(bad_input) for a file that is no
  /// such state, Error(incompatible) for that of another model, Error(invalid_argument) if another stream holds it,
  /// Error(io_failure) if it could not be written later.
  StreamState(std::string path, const std::string& model);

  /// Returns whether there was a file.
  bool found() const { return found_; }
  void restore(Session& session) const;
  /// Restores the state of one series of groups.
  void restore(Session& session, std::span<const float> state) const;
  /// A file that knows nothing of intervals leaves them as at the start of a series.
  void restore(IntervalTracker& tracker) const;
  void restore(RowReader& reader) const;
  /// Writes the file by a FileWriter.
  void save(Session& session) const;

  /// Probabilities expected for a text's next byte; empty at its start.
  std::vector<float> expected;
  /// State of the intervals of a series; empty without them.
  std::vector<float> intervals;

  /// State of one series of a model of groups.
  struct OfGroup {
    std::vector<float> state;
    std::vector<float> intervals;
    std::optional<Group> scaling;  ///< Scaling of a series that training did not see.
  };
  std::map<std::string, OfGroup> groups;
  /// Last rows, as RowReader::last_rows() returns them.
  std::map<std::string, RowReader::LastRow> last_rows;

 private:
  std::string path_;
  std::optional<OutputLock> lock_;
  std::string checksum_;  // of the model
  bool found_ = false;
  std::vector<float> state_;

  void read_groups(const nlohmann::json& list);
  void read_last_rows(const nlohmann::json& object);
};

}  // namespace penstock::cli
