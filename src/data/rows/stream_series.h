#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

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

}  // namespace penstock::data
