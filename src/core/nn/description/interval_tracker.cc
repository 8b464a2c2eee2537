#include "penstock/interval_tracker.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace penstock {

namespace {

constexpr double forgetting = 0.1;       // of squares, with each row: a mean over some ten rows
constexpr double learning = 0.1;         // of the correction, from each row
constexpr double wildest_square = 16.0;  // that one row counts as, in units of the mean so far
constexpr double least_square = 1e-4, largest_square = 1e4;
constexpr double largest_correction = 1.5;           // of the logarithm
constexpr double low_level = 0.1, high_level = 0.9;  // of the intervals whose misses are counted
constexpr std::size_t most_distances = 64;           // whose errors are looked at
constexpr double rounding = 1e-5;                    // by which values that are the same may differ

}  // namespace

void RecentWidth::see(double mean_square, double excess) {
  const auto square = static_cast<double>(square_), correction = static_cast<double>(correction_);
  const double next = square + forgetting * (std::min(mean_square, wildest_square * square) - square);
  square_ = static_cast<float>(std::clamp(next, least_square, largest_square));
  correction_ = static_cast<float>(std::clamp(correction + learning * excess, -largest_correction, largest_correction));
}

double RecentWidth::width() const {
  return std::sqrt(static_cast<double>(square_)) * std::exp(static_cast<double>(correction_));
}

void RecentWidth::restore(float square, float correction) {
  const bool can_be = square >= static_cast<float>(least_square) && square <= static_cast<float>(largest_square) &&
                      std::abs(correction) <= static_cast<float>(largest_correction);
  require(can_be, "widths of {:g} and {:g} follow from no errors", square, correction);
  square_ = square;
  correction_ = correction;
}

IntervalTracker::IntervalTracker(const DataDescription& data)
    : data_(data), now_(data.series.errors), recent_(data.targets.size()), widths_(data.targets.size(), 1.0) {
  if (!follows()) return;
  now_.endings.clear();
  for (const Column& target : data_.targets) sources_.push_back(data_.input_of(target.name));
  std::size_t rows = std::min(most_distances, static_cast<std::size_t>(data_.series.horizon));
  for (const ErrorDistribution::Ending& ending : data_.series.errors.endings)
    rows = std::max(rows, ending.values.size() / targets());
  rows_.resize(rows);
}

void IntervalTracker::add(std::span<const float> features, std::span<const float> forecasts,
                          std::span<const double> values) {
  if (!follows()) return;
  require(features.size() == data_.inputs.size(), "features must hold {} values, not {}", data_.inputs.size(),
          features.size());
  require(forecasts.size() == static_cast<std::size_t>(data_.output_size()), "forecasts must hold {} values, not {}",
          data_.output_size(), forecasts.size());
  require(values.empty() || values.size() == targets(), "values must hold {} of the targets, not {}", targets(),
          values.size());
  const std::vector<double> read = read_values(features);
  see_errors(values.empty() ? read : values);
  Row& row = rows_[seen_++ % rows_.size()];
  row.values.clear();
  for (std::size_t c = 0; c < targets(); ++c) {
    row.values.push_back(sources_[c] ? static_cast<float>(data_.targets[c].normal(read[c])) : 0.0f);
  }
  const auto kept = forecasts.first(std::min(most_distances * targets(), forecasts.size()));
  row.forecasts.assign(kept.begin(), kept.end());
  set_widths();
  row.widths.assign(widths_.begin(), widths_.end());
  go_on_from_ending();
}

/// So many rows before the one that comes next.
const IntervalTracker::Row& IntervalTracker::before(std::size_t rows) const {
  return rows_[(seen_ - rows) % rows_.size()];
}

/// Returns the raw values of the targets that the model reads; NaN for targets that it does not read.
std::vector<double> IntervalTracker::read_values(std::span<const float> features) const {
  std::vector<double> values;
  for (const std::optional<std::size_t> input : sources_) {
    values.push_back(input ? data_.inputs[*input].raw(static_cast<double>(features[*input]))
                           : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

void IntervalTracker::see_errors(std::span<const double> values) {
  const ErrorDistribution& usual = data_.series.errors;
  const double low = std::max(low_level, usual.levels.front()), high = std::min(high_level, usual.levels.back());
  const std::size_t distances = std::min({most_distances, static_cast<std::size_t>(data_.series.horizon), seen_});
  for (std::size_t c = 0; c < targets(); ++c) {
    if (!sources_[c] || std::isnan(values[c])) continue;
    double squares = 0.0, outside = 0.0, count = 0.0;
    for (std::size_t step = 0; step < distances; ++step) {
      const Row& from = before(step + 1);
      const std::size_t output = step * targets() + c;
      const double error =
          usual.error_between(values[c], static_cast<double>(from.forecasts[output]), c, data_.targets[c]);
      const double scale = usual.scales[output], width = static_cast<double>(from.widths[c]);
      if (!std::isfinite(error) || !(scale > 0.0)) continue;
      const auto index = static_cast<Index>(output);
      const bool within = error >= width * usual.error(low, index) && error <= width * usual.error(high, index);
      squares += std::pow(error / scale, 2.0);
      outside += within ? 0.0 : 1.0;
      ++count;
    }
    if (count > 0.0) recent_[c].see(squares / count, outside / count - (1.0 - (high - low)));
  }
}

bool IntervalTracker::ends_here(const ErrorDistribution::Ending& ending) const {
  const std::size_t rows = ending.values.size() / targets();
  if (seen_ < rows) return false;
  for (std::size_t back = 1; back <= rows; ++back) {
    const auto known = std::span(ending.values).subspan((rows - back) * targets(), targets());
    const std::vector<float>& values = before(back).values;
    for (std::size_t c = 0; c < targets(); ++c) {
      const auto value = static_cast<double>(known[c]);
      if (!(std::abs(static_cast<double>(values[c]) - value) <= rounding * (1.0 + std::abs(value)))) return false;
    }
  }
  return true;
}

/// A model forecasts the rows it was fitted to better than later ones. At the end of these rows, errors of forecasts
/// that had not seen them replace the errors so far.
void IntervalTracker::go_on_from_ending() {
  const auto& endings = data_.series.errors.endings;
  const auto ending =
      std::ranges::find_if(endings, [&](const ErrorDistribution::Ending& each) { return ends_here(each); });
  if (ending == endings.end()) return;
  for (std::size_t c = 0; c < targets(); ++c) recent_[c].restore(ending->widths[2 * c], ending->widths[2 * c + 1]);
  set_widths();
  for (Row& row : rows_) row.widths.assign(widths_.begin(), widths_.end());
}

void IntervalTracker::set_widths() {
  for (std::size_t c = 0; c < targets(); ++c) widths_[c] = static_cast<double>(static_cast<float>(recent_[c].width()));
  for (std::size_t i = 0; i < now_.scales.size(); ++i)
    now_.scales[i] = data_.series.errors.scales[i] * widths_[i % targets()];
}

void IntervalTracker::reset() {
  seen_ = 0;
  std::ranges::fill(recent_, RecentWidth());
  if (follows()) set_widths();
}

std::vector<float> IntervalTracker::recent() const {
  std::vector<float> all;
  for (const RecentWidth& each : recent_) all.insert(all.end(), {each.square(), each.correction()});
  return all;
}

std::vector<float> IntervalTracker::state() const {
  std::vector<float> state;
  if (!follows()) return state;
  state = recent();
  for (std::size_t back = std::min(seen_, rows_.size()); back >= 1; --back) {
    const Row& row = before(back);
    for (const auto* values : {&row.values, &row.forecasts, &row.widths}) {
      state.insert(state.end(), values->begin(), values->end());
    }
  }
  return state;
}

void IntervalTracker::restore(std::span<const float> state) {
  const std::size_t distances = std::min(most_distances, static_cast<std::size_t>(data_.series.horizon));
  const std::size_t front = 2 * targets(), row = (distances + 2) * targets();
  reset();
  if (state.empty()) return;
  const bool fits = follows() && state.size() >= front && (state.size() - front) % row == 0 &&
                    (state.size() - front) / row <= rows_.size();
  require(fits, "the state of intervals must not hold {} values", state.size());
  require(std::ranges::all_of(state, [](float value) { return std::isfinite(value); }),
          "the state of intervals must be finite");
  for (std::size_t c = 0; c < targets(); ++c) recent_[c].restore(state[2 * c], state[2 * c + 1]);
  for (std::span<const float> left = state.subspan(front); !left.empty(); left = left.subspan(row)) {
    Row& to = rows_[seen_++ % rows_.size()];
    const auto take = [&](std::size_t from, std::size_t count) {
      const auto part = left.subspan(from, count);
      return std::vector<float>(part.begin(), part.end());
    };
    to.values = take(0, targets());
    to.forecasts = take(targets(), distances * targets());
    to.widths = take((distances + 1) * targets(), targets());
  }
  set_widths();
}

double raw_forecast(const DataDescription& data, const ErrorDistribution& distribution, std::span<const float> outputs,
                    std::size_t output, std::optional<double> level) {
  const Column& column = data.targets[output % data.targets.size()];
  const auto normalised = static_cast<double>(outputs[output]);
  return level ? distribution.quantile(*level, static_cast<Index>(output), column, normalised) : column.raw(normalised);
}

}  // namespace penstock
