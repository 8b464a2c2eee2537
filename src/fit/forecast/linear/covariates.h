#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "forecast/linear/autoregression.h"

/// Regression on covariates, whose values are known for the rows to come: what a row's covariates do to its value is
/// taken away, and the rest of the series is forecast from its own past.
namespace penstock::training {

/// Columns beside one series [covariates], each with a value for every row of it.
using Covariates = std::vector<std::span<const double>>;
/// Covariates of several series.
using ManyCovariates = std::span<const Covariates>;

/// How effects are estimated.
struct EffectsChoice {
  Index season = 1;         ///< Season of the series.
  std::size_t penalty = 0;  ///< Number of the ridge penalty.
};

/// Returns the effect of one unit of each covariate on the value of its row [covariates], by generalised least squares:
/// ordinary least squares on the residuals of the series and of the covariates under an autoregression (Cochrane and
/// Orcutt, 1949), so that neither a shared trend nor a shared season counts as an effect. All zero if there are too few
/// rows.
std::vector<double> estimate_effects(ManySeries z, ManyCovariates x, const EffectsChoice& choice);

/// The penalty with which effects that are estimated from beginnings of the series explain best what an autoregression
/// leaves of the rows behind them.
EffectsChoice choose_effects(ManySeries z, ManyCovariates x, Index season);

/// Returns the sum that covariates add to the value of a row.
double effect_on(const Covariates& x, Index row, std::span<const double> effects);

/// Returns the series less the effects of their covariates.
std::vector<std::vector<double>> without_effects(ManySeries z, ManyCovariates x, std::span<const double> effects);

/// How far forecasts are off behind beginnings of the series, by a choice for what covariates leave of them, with
/// effects that are estimated anew from each beginning; of the series themselves without covariates (`effects` null).
/// Can be compared for the same season, as in choose_linear_forecast().
double error_with_effects(ManySeries z, ManyCovariates x, const EffectsChoice* effects, const LinearChoice& choice,
                          Index season, const RawValue& raw);

}  // namespace penstock::training
