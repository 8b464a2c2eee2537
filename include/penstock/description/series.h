#pragma once

#include <string>
#include <vector>

#include "penstock/description/column.h"
#include "penstock/description/row_dates.h"
#include "penstock/description/spread.h"
#include "penstock/types.h"

/// Series, their groups, and the distribution of the errors of their forecasts.
namespace penstock {

/// Mean and scale of a column in one of many series.
struct Scaling {
  double mean = 0.0, scale = 1.0;
};

/// One of the series in a table of many, with its own scaling. Its normalised values are ((v - scaling.mean) /
/// scaling.scale - column.mean) / column.scale, with v as for Column.
struct Group {
  std::string name;
  std::vector<Scaling> inputs;   ///< One for each input.
  std::vector<Scaling> targets;  ///< One for each target.
};

/// Describes series whose values a model forecasts.
struct SeriesDescription {
  Index horizon = 1;                  ///< Steps ahead; the output of the model is [horizon, targets].
  Index season = 0;                   ///< Rows of a seasonal period; 1: no season, 0: unknown.
  Spread spread;                      ///< Distribution of the errors of a trained model.
  std::string group_column = {};      ///< Column with the name of each row's series; empty: one series.
  std::vector<Group> groups = {};     ///< The series of training, each with its scaling.
  bool groups_are_files = false;      ///< Series are named by their files; `group_column` is then a heading for them.
  RowDates row_dates = {};            ///< Dates of the rows, if they matter.
  Undated undated = Undated::refuse;  ///< How training treated rows whose date cannot be read.
};

}  // namespace penstock
