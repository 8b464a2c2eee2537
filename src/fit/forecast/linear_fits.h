#pragma once

#include "data/series/series_rows.h"
#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// The linear forecast of a series, fitted to its rows.
struct LinearFits {
  Autoregression training;  ///< Chosen by the training part and fitted to it.
  Autoregression all;       ///< Chosen by all rows and fitted to them, with as many lags.
  RowErrors past_errors;    ///< Of forecasts that are fitted to beginnings of the training part.
};

/// Returns the linear forecast of a dataset; null if it has none. The first call fits it. Any thread may call this.
const LinearFits* linear_fits(const Dataset& data);
/// Returns a linear forecast chosen by one group alone and fitted to it: to its training part, or to all its rows.
Autoregression fit_group(const Dataset& data, Index group, bool all_rows);

}  // namespace penstock::training
