#pragma once

#include <functional>
#include <span>
#include <vector>

#include "data/series/series_rows.h"

namespace penstock::training {

/// Rows of one or more series, and when they were.
struct DatedRows {
  std::span<const float> values;    ///< [rows, targets], normalised
  Index targets = 1;                ///< Columns of `values`
  std::span<const double> seconds;  ///< [rows], rising in each segment
  double step = 1.0;                ///< Usual seconds from row to row
  const std::vector<Segment>& segments;
  std::function<bool(Index row, Index target)> is_known;  ///< Whether a value is one of the data.
};

/// For each of these cycles (in seconds, longer than two steps), whether the training rows follow it beyond what their
/// own recent past says: an F test at a level of one in a thousand, for each target.
std::vector<bool> cycles_shown(const DatedRows& rows, std::span<const double> cycles);

}  // namespace penstock::training
