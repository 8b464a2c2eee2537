#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "penstock/data/row_reader.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Statistics of the series of training, for series that it did not see. Construction takes time by their number.
class TrainedSeries {
 public:
  explicit TrainedSeries(const DataDescription& data);

  /// Returns whether a raw value of an input lies in the readable range of a series of training, or between two such
  /// ranges.
  bool can_read(double raw, std::size_t input) const;
  /// The mean of the scalings of each target.
  const std::vector<Scaling>& targets() const { return targets_; }

 private:
  struct Range {
    Column lowest, highest;  // as the series that reach furthest down and up are scaled
  };
  std::vector<Range> ranges_;  // of the inputs; none without groups
  std::vector<Scaling> targets_;
};

/// One series of a stream of rows: how its values are scaled, and the last of them.
class StreamSeries {
 public:
  /// `trained`: training saw it, and `of` has its scaling where there are groups. Otherwise its rows say how it is
  /// scaled.
  StreamSeries(const DataDescription& data, Group of, bool trained);

  /// Forgets the rows read so far; the scaling stays.
  void restart();

  /// A raw value as the model reads it; `column` is that of the input before any scaling of its series. A series that
  /// training did not see is scaled by its first values until settle(). Throws Error(bad_input) naming source and line.
  float normalised(double raw, std::size_t input, const Column& column, const std::string& source, Index line);

  /// Returns whether a raw value of an input, such as 3.4e38, cannot have been measured. It judges values of a series
  /// that training did not see, by the scalings of all that it saw.
  bool is_too_far(double raw, std::size_t input, const DataDescription& data, const TrainedSeries& others) const;

  /// Scales a series that training did not see by the first `count` rows of `features` [rows, I], which normalised()
  /// gave, and turns them and the last values into what they are by that scaling.
  void settle(const DataDescription& data, const TrainedSeries& others, std::span<float> features, Index count,
              const std::string& source);

  Group group;
  std::vector<Column> inputs;  // with the scaling of the group
  bool settled;                // or scaled by first values
  std::vector<float> values;   // of the last row; the mean before the first; NaN where no mean is known yet
  std::optional<double> date;  // of the last row, if it is known and matters

 private:
  void scale_by(std::size_t input, const Column& column, std::span<float> features, std::size_t rows,
                const std::string& source);
  void scale_targets(const DataDescription& data, const TrainedSeries& others);

  bool trained_;
  std::vector<bool> begun_;  // whether there is a scaling of each column
};

/// All series of a stream of rows.
class SeriesSet {
 public:
  /// `data` must outlive the set. Without groups there is one series, and it is the current one.
  explicit SeriesSet(const DataDescription& data);

  /// Returns the series of the last row; null before the first row.
  StreamSeries* current() const { return current_; }
  StreamSeries* operator->() const { return current_; }
  const TrainedSeries& trained() const { return trained_; }

  /// Makes a series the current one. Adds it, as one that training did not see, if the set lacks it.
  void start(const std::string& name);
  /// Adds a series whose scaling is known. Throws Error(invalid_argument) unless there is one of each column.
  void add(const Group& group);
  /// Restarts all series (StreamSeries::restart()).
  void restart();
  // RowReader documents the next three: settle_group(), last_rows() and set_last_rows().
  const Group& settle(const std::string& name, std::span<float> features, Index count, const std::string& source);
  std::map<std::string, RowReader::LastRow> last_rows() const;
  void set_last_rows(const std::map<std::string, RowReader::LastRow>& rows);

 private:
  const DataDescription& data_;
  TrainedSeries trained_;
  std::unordered_map<std::string, StreamSeries> all_;  // by name
  StreamSeries* current_ = nullptr;
};

}  // namespace penstock::data
