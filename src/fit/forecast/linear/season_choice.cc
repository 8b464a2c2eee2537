#include "forecast/linear/season_choice.h"

#include <algorithm>
#include <vector>

#include "forecast/linear/season.h"
#include "forecast/linear/smoothing_fit.h"

namespace penstock::training {

namespace {

constexpr Index customary[] = {4, 7, 12, 24};
constexpr Index seasons_of_customary = 3;    // rows that there must be to try them: so many times as long ...
constexpr Index fewest_rows_of_season = 40;  // ... and never fewer than this

bool is_long_enough(ManySeries z, Index period) {
  return std::ranges::any_of(z, [&](std::span<const double> each) {
    return static_cast<Index>(each.size()) >= std::max(fewest_rows_of_season, seasons_of_customary * period);
  });
}

}  // namespace

bool is_customary(Index period) { return std::ranges::find(customary, period) != std::end(customary); }

// A trend that bends hides a season from correlations, and noise makes two of its multiples as alike as itself: periods
// that people count in are tried beside the one that was found.
ChosenSeason choose_season(ManySeries z, Index horizon, int threads) {
  constexpr double plain_to_see = 0.5;  // correlation
  // Difference of Akaike's criterion beyond which nothing speaks for the less likely (Burnham and Anderson, 2002): a
  // few seasons fit as well as that before the first beginnings of the rows are long enough to forecast by them.
  constexpr double beyond_doubt = 10.0;
  const FoundSeason found = look_for_season(z);
  std::vector<Index> periods;
  for (const Index period : customary) {
    if (period != found.rows && is_long_enough(z, period)) periods.push_back(period);
  }
  if (found.rows > 1) periods.push_back(found.rows);
  const bool plain = found.rows > 1 && found.alike >= plain_to_see;
  if (plain && found.rows > longest_smoothed_period) return {.rows = found.rows};
  const auto [likeliest, likelier_by] = likeliest_period(z, periods, horizon, threads);
  if (plain && (likeliest == 1 || likeliest == found.rows)) return {.rows = found.rows};
  if (likeliest == 1) return {};
  // Among some hundred distances, one looks like a faint season by chance more often than among the few customary ones.
  const bool of_few = is_customary(likeliest);
  if (of_few && likelier_by > beyond_doubt) return {.rows = likeliest};
  return {.rows = likeliest, .plain = false, .most_error = of_few ? 0.95 : 0.9};
}

}  // namespace penstock::training
