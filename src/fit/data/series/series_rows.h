#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "forecast/linear/covariates.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::training {

/// forecast - value, normalised, of forecasts from several rows.
struct RowErrors {
  std::vector<Index> rows;    ///< That were forecast from
  std::vector<float> errors;  ///< [rows, horizon, targets]; NaN where a value is not known
};

/// Rows that follow each other in time: those of one file, or of one group in it. Training learns from those before
/// `training_end`; the others are held out.
struct Segment {
  Index first = 0, training_end = 0, end = 0;
  Index group = -1;   ///< Number in SeriesDescription::groups; -1: there are no groups.
  Index to_come = 0;  ///< Rows behind the end that say only what is known in advance.

  Index rows() const { return end - first; }
  Index training_rows() const { return training_end - first; }
  Index held_out() const { return end - training_end; }
};

/// How the past of a target is forecast from, and whether effects of what is known in advance are taken away before.
struct LinearPlan {
  LinearChoice choice;
  std::optional<EffectsChoice> effects;
};
/// Plans of all targets [targets]; none for a target whose past is not read.
using LinearPlans = std::vector<std::optional<LinearPlan>>;

struct LinearFits;  // of forecast/linear_fits.h, the layer above

/// The rows of a series as a dataset keeps them, segment by segment.
class SeriesRows {
 public:
  virtual ~SeriesRows() = default;

  virtual const std::vector<Segment>& segments() const = 0;
  virtual std::span<const float> inputs() const = 0;   ///< [rows, I], normalised
  virtual std::span<const float> targets() const = 0;  ///< [rows, targets], normalised
  /// Returns a value as in the table. Restoring a normalised value loses digits, and zeros become other numbers.
  virtual double value(Index row, Index target) const = 0;
  /// Returns whether a value is in the data: forecasts are compared with no value that was put in place of a missing
  /// one.
  virtual bool is_known(Index row, Index target) const = 0;
  /// Returns the values of all targets [targets]; NaN for unknown ones.
  std::vector<double> known_values(Index row, Index targets) const;
  /// Returns the date of a row in seconds since the start of 1970, if that is read.
  virtual std::optional<double> date(Index row) const = 0;
  /// The linear forecast as it is chosen by the training part; empty if there is none.
  virtual const LinearPlans& linear_plans() const = 0;
  /// Returns the linear forecast as it is chosen by all rows.
  virtual LinearPlans plan_by_all_rows() const = 0;
  /// Returns the linear forecast of one group alone, chosen by its training part or by all its rows.
  virtual LinearPlans plan_of_group(Index group, bool all_rows) const = 0;
  /// Returns the number of threads that fit it.
  virtual int threads() const = 0;
  /// Dataset::validation(). With a linear forecast, each row of a batch is led in by `past_rows` or more of the rows
  /// before it, as far as there are some.
  virtual bool held_out_batch(Index i, Index rows, Index steps, Index past_rows, Example& example) const = 0;

  /// Returns what `fit` makes of these rows. Only the first call calls it. Any thread may call this.
  const LinearFits& linear_fits(const std::function<std::shared_ptr<const LinearFits>()>& fit) const;

  Index held_out() const;
  /// Returns the segment of a row.
  const Segment& segment_of(Index row) const;

 private:
  mutable std::mutex guard_;
  mutable std::shared_ptr<const LinearFits> fits_;
};

/// Returns whether a dataset has a linear forecast (SeriesOptions::autoregression), without fitting it.
bool has_linear_forecast(const Dataset& data);

/// The segment that holds a row; segments ascend.
const Segment& segment_of(const std::vector<Segment>& segments, Index row);

/// The inputs or the targets (`columns` and `scalings`) of one segment, with the scaling of its group.
std::vector<Column> columns_of(const DataDescription& data, const Segment& segment,
                               std::vector<Column> DataDescription::*columns, std::vector<Scaling> Group::*scalings);

/// The description of each segment of the same data, with the scaling of its group.
class SegmentDescriptions {
 public:
  explicit SegmentDescriptions(const DataDescription& data) : data_(data), groups_(data) {}
  DataDescription of(const Segment& segment) const;

 private:
  const DataDescription& data_;
  GroupDescriptions groups_;
};

/// Takes a row and what a model forecasts from it, [horizon, targets], normalised.
using ForecastSink = std::function<void(Index row, std::span<const float> forecasts)>;

/// Runs the model over a segment from its beginning, and hands on what it forecasts from row `first` and all later
/// ones.
void forecast_segment(const Model& model, const SeriesRows& series, const Segment& segment, Index first,
                      const Execution& execution, const ForecastSink& sink);

/// Returns the errors of forecasts from the last rows before the held-out ones and from all later ones, about the
/// latest ten thousand.
RowErrors held_out_errors(const Model& model, const SeriesRows& series, const Execution& execution);

}  // namespace penstock::training
