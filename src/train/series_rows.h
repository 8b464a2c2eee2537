#pragma once

#include <functional>
#include <span>
#include <vector>

#include "penstock/data.h"
#include "penstock/model.h"

namespace penstock::training {

/// forecast - value, normalised, of forecasts from several rows.
struct RowErrors {
  std::vector<Index> rows;    ///< That were forecast from
  std::vector<float> errors;  ///< [rows, horizon, targets]; NaN where a value is not known, or not asked for
};

/// The rows of a series as a dataset keeps them: those that training learns from, then those that are held out.
class SeriesRows {
 public:
  virtual ~SeriesRows() = default;

  virtual Index rows() const = 0;
  virtual Index training_rows() const = 0;
  /// First rows of files, from the second one on.
  virtual const std::vector<Index>& starts() const = 0;
  virtual std::span<const float> inputs() const = 0;   ///< [rows, I], normalised
  virtual std::span<const float> targets() const = 0;  ///< [rows, targets], normalised
  /// Whether forecasts of a value count: it was not missing, or missing values are learnt as if they had been there.
  virtual bool is_asked_for(Index row, Index target) const = 0;
  /// A linear forecast that is chosen by all rows and fitted to them; null without one.
  virtual const Autoregression* refitted() const = 0;
  /// Of linear forecasts fitted to beginnings of the training part.
  virtual const RowErrors& past_errors() const = 0;

  /// The rows of a dataset; null if it is no series.
  static const SeriesRows* of(const Dataset& data);
};

/// Takes a row and what a model forecasts from it, [horizon, targets], normalised.
using ForecastSink = std::function<void(Index row, std::span<const float> forecasts)>;

/// Runs the model over the rows, from the beginning of the file of row `first`, and hands on what it forecasts from
/// that row and all later ones. `begin` is told the first row of each file that is run.
void forecast_rows(const Model& model, const SeriesRows& series, Index first, const Execution& execution,
                   const std::function<void(Index row)>& begin, const ForecastSink& sink);

/// Of what is forecast from the last row before the held-out part and from all later ones, the latest ten thousand.
RowErrors held_out_errors(const Model& model, const SeriesRows& series, const Execution& execution);

}  // namespace penstock::training
