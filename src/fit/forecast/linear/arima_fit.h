#pragma once

#include <optional>

#include "forecast/linear/arima.h"

namespace penstock::training {

/// Rows that an ARIMA forecast reads of series of so many; none if these are too few or too many.
std::optional<Index> arima_window(Index rows, Index period);

/// Chooses the orders of differences: by season if its strength is plain, then by row if a test by Kwiatkowski,
/// Phillips, Schmidt and Shin (1992) finds that the level moves. The majority of series decides. Never twice by row: a
/// trend that follows the last few changes goes astray over a whole horizon.
ArimaOrders choose_differences(ManySeries z, Index period);

/// The orders with the least of Akaike's criterion, corrected for few rows, that a search step by step finds (Hyndman
/// and Khandakar, 2008); none if there are too few rows, or differences are all equal.
std::optional<ArimaOrders> choose_orders(ManySeries z, Index period);

/// The coefficients with the largest likelihood; none if differences are all equal.
std::optional<Arima> fit_arima(ManySeries z, const ArimaOrders& orders);

}  // namespace penstock::training
