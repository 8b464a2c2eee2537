#pragma once

#include <span>
#include <vector>

#include "forecast/linear/linear_forecast.h"

namespace penstock::training {

/// Exponential smoothing with additive errors, trend and season, or with a level that grows at an even rate: a linear
/// recurrence, whose forecasts are linear in the rows that it has seen and in the state that it began with.
struct Smoothing {
  bool has_trend = false;
  Index period = 1;      ///< Rows of a season; 1: none.
  double level = 0.5;    ///< How much of an error goes into the level ...
  double trend = 0.0;    ///< ... into the trend ...
  double season = 0.0;   ///< ... and into the season.
  double damping = 1.0;  ///< Factor of the trend from row to row.
  double growth = 1.0;   ///< Factor of the level from row to row ...
  double zero = 0.0;     ///< ... counted from here.

  /// Numbers that a state has freely: one season less than a period, as the level could make up for it.
  Index states() const { return 1 + (has_trend ? 1 : 0) + period - 1; }
};

/// How much of the trend and of the level is in a row ahead.
struct Ahead {
  double trends = 0.0;  ///< damping + damping^2 + ..., a term for each row ahead.
  double growth = 1.0;

  Ahead next(const Smoothing& smoothing) const {
    return {smoothing.damping * (1.0 + trends), smoothing.growth * growth};
  }
};

/// State of a smoothing after a row.
class SmoothingState {
 public:
  /// All zeros, but for a 1 at place `one` of the free numbers if that is not negative.
  explicit SmoothingState(const Smoothing& smoothing, Index one = -1);

  /// The value that is expected so many rows behind the next one.
  double expected(Index behind, const Ahead& ahead) const {
    return ahead.growth * level_ + ahead.trends * trend_ + (seasons_.empty() ? 0.0 : seasons_[of_season(behind)]);
  }
  /// Updates the state by the next row, whose value counts from the smoothing's zero. Returns the forecast error, value
  /// - forecast.
  double see(const Smoothing& smoothing, double value) {
    const double error = value - expected(0, Ahead().next(smoothing));
    level_ = smoothing.growth * level_ + smoothing.damping * trend_ + smoothing.level * error;
    trend_ = smoothing.damping * trend_ + smoothing.trend * error;
    if (!seasons_.empty()) {
      seasons_[next_] += smoothing.season * error;
      next_ = of_season(1);
    }
    return error;
  }
  void add(double factor, const SmoothingState& other);

 private:
  std::size_t of_season(Index behind) const {
    const std::size_t season = next_ + static_cast<std::size_t>(behind);
    return season < seasons_.size() ? season : season % seasons_.size();
  }

  double level_ = 0.0, trend_ = 0.0;
  std::vector<double> seasons_;
  std::size_t next_ = 0;  // season of the next row
};

/// Finds the state before the first of some rows that makes the squares of errors in all of them least.
class FirstState {
 public:
  FirstState(const Smoothing& smoothing, Index rows);

  bool is_solvable() const { return solvable_; }
  /// The free numbers, from the errors [rows] of a run that began with zeros.
  std::vector<double> solve(std::span<const double> errors) const;

 private:
  /// Number of the response to 1 at a place, and its delay in rows. The seasons share the response of the first, since
  /// each of them begins it anew.
  struct Response {
    std::size_t response, delay;
  };
  Response response_of(std::size_t one) const {
    return one < singles_ ? Response{one, 0} : Response{singles_, one - singles_};
  }
  /// Inner product of other errors [rows] with those of a response.
  double product(std::size_t one, std::span<const double> errors) const;

  std::size_t singles_, states_;             // numbers that are no seasons, and all
  std::vector<std::vector<double>> errors_;  // [singles, and one for the seasons][rows]
  std::vector<double> factor_;               // Cholesky's, of the Gram matrix of all errors
  bool solvable_ = false;
};

/// The forecast from the last `lags` rows, the state before them being the one that they fit best.
LinearForecast smooth(const Smoothing& smoothing, Index lags, Index horizon);

}  // namespace penstock::training
