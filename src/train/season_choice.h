#pragma once

#include "train/linear_forecast.h"

namespace penstock::training {

struct ChosenSeason {
  Index rows = 1;  ///< Rows after which series repeat themselves; 1: they do not.
  /// What is plain to see stands. Otherwise the season has to prove itself: the mean square error of forecasts with it
  /// may be so large a share of that without it.
  bool plain = true;
  double most_error = 1.0;
};

/// Whether people count in it: quarters, days of a week, months, hours of a day.
bool is_customary(Index period);

/// The season of series, among one that shows in their correlations and those that people count in; looked for on so
/// many threads.
ChosenSeason choose_season(ManySeries z, Index horizon, int threads = 1);

}  // namespace penstock::training
