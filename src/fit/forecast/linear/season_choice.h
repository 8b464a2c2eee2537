#pragma once

#include "forecast/linear/linear_forecast.h"

namespace penstock::training {

struct ChosenSeason {
  Index rows = 1;  ///< Rows after which series repeat themselves; 1: they do not.
  /// False: the season must prove itself. The mean square error of forecasts with it must be at most `most_error` times
  /// that of forecasts without it.
  bool plain = true;
  double most_error = 1.0;
};

/// Returns whether people count in this period: quarters, days of a week, months, hours of a day.
bool is_customary(Index period);

/// The season of series: the one that their correlations show, or one of those that people count in. `threads` look
/// for it.
ChosenSeason choose_season(ManySeries z, Index horizon, int threads = 1);

}  // namespace penstock::training
