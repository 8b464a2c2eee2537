#pragma once

#include <string>
#include <vector>

#include "penstock/description/column.h"
#include "penstock/description/error_distribution.h"
#include "penstock/description/row_dates.h"
#include "penstock/types.h"

/// Series, their groups, and the distribution of the errors of their forecasts.
namespace penstock {

/// Mean and scale of a column in one of many series.
struct Scaling {
  double mean = 0.0, scale = 1.0;
};

/// A linear forecast of a series from its last rows (ClosedFormBranchFields::lags).
///
/// The forecast is x_t + bias + sum_k weights_k x_{t-k}, with x normalised as targets are. With `effects`, x is the
/// value minus the effects in its row, and the effects in the forecast row are added to the result.
struct Autoregression {
  Index lags = 0;
  std::vector<float> weights;  ///< [lags, horizon, targets]; the current row comes first.
  std::vector<float> bias;     ///< [horizon, targets]
  /// [I, targets]: coefficients of the normalised inputs of a row in the targets of the same row. Only inputs that are
  /// known in advance have coefficients other than 0. Empty: no effects.
  std::vector<float> effects = {};
};

/// One of the series in a table of many, with its own scaling. Its normalised values are ((v - scaling.mean) /
/// scaling.scale - column.mean) / column.scale, with v as for Column.
struct Group {
  std::string name;
  std::vector<Scaling> inputs;   ///< One for each input.
  std::vector<Scaling> targets;  ///< One for each target.
  Autoregression own = {};       ///< Forecast of this series alone, which replaces the shared one. No lags: none.
};

/// Describes series whose values a model forecasts.
struct SeriesDescription {
  Index horizon = 1;                  ///< Steps ahead; the output of the model is [horizon, targets].
  Index season = 0;                   ///< Rows of a seasonal period; 1: no season, 0: unknown.
  ErrorDistribution errors;           ///< Distribution of the errors of a trained model.
  std::string group_column = {};      ///< Column with the name of each row's series; empty: one series.
  std::vector<Group> groups = {};     ///< The series of training, each with its scaling.
  bool groups_are_files = false;      ///< Series are named by their files; `group_column` is then a heading for them.
  RowDates row_dates = {};            ///< Dates of the rows, if they matter.
  Undated undated = Undated::refuse;  ///< How training treated rows whose date cannot be read.
  Autoregression own = {};            ///< Group::own in the description of one series (DataDescription::of_group).

  /// Returns the names of the series with a forecast of their own.
  std::vector<std::string> own_forecasts() const {
    std::vector<std::string> names;
    for (const Group& group : groups) {
      if (group.own.lags > 0) names.push_back(group.name);
    }
    return names;
  }
  /// Removes what is known of a trained model: the distribution of errors, and forecasts of single series.
  void forget_forecasts() {
    errors = {};
    for (Group& group : groups) group.own = {};
  }
};

}  // namespace penstock
