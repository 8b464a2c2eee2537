#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <unordered_map>

#include "data/series/series_rows.h"
#include "forecast/heads.h"
#include "forecast/linear_fits.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/interval_tracker.h"
#include "penstock/stop.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

constexpr double spread_levels[] = {0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3,  0.35,  0.4,  0.45, 0.5,
                                    0.55,  0.6,  0.65,  0.7,  0.75, 0.8,  0.85, 0.9,  0.95, 0.975, 0.99, 0.995};
// Errors of the linear forecast in the training part are of older rows, and of fits to fewer.
constexpr double past_weight = 0.5;
// Independent blocks of errors whose own figures count as much as what is assumed without any.
constexpr double blocks_of_prior = 10.0;

// Fitted numbers of the largest smoothing without a season: an initial level and trend, the weights by which an error
// changes each, and damping.
constexpr double fitted_numbers = 5.0;

/// How much wider than the errors that were seen those to come lie, since the forecast was chosen and fitted by so many
/// rows: the root of Akaike's final prediction error (1969).
double widening(double rows) {
  const double n = std::max(rows, 3.0 * fitted_numbers);
  return std::sqrt((n + fitted_numbers) / (n - fitted_numbers));
}

/// How many times larger errors to come are than those on the held-out rows, from these errors and those of the linear
/// forecast alone. The share of the layers was chosen by these rows, so that they promise too much: a share s of
/// corrections c seems to take 2 s <c, e> - s^2 <c, c> off the squares of errors e. As <c, e> is s <c, c> by what is
/// believed of it once the share has been shrunk, s^2 <c, c> is what it will be.
double widening_by_choice(std::span<const float> with, std::span<const float> without) {
  double squares = 0.0, alone = 0.0, corrections = 0.0;
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (!std::isfinite(with[i])) continue;
    const auto error = static_cast<double>(with[i]), of_linear = static_cast<double>(without[i]);
    squares += error * error;
    alone += of_linear * of_linear;
    corrections += (error - of_linear) * (error - of_linear);
  }
  return alone - corrections > squares && squares > 0.0 ? std::sqrt((alone - corrections) / squares) : 1.0;
}

/// Errors of the linear forecast in the training part; NaN in series that have a forecast of their own.
training::RowErrors errors_of_shared(const Model& model, const training::SeriesRows& series,
                                     training::RowErrors errors) {
  const std::vector<Group>& groups = model.data().series.groups;
  const Index width = model.data().output_size();
  for (std::size_t i = 0; i < errors.rows.size(); ++i) {
    const Index group = series.segment_of(errors.rows[i]).group;
    if (group < 0 || groups[group].own.lags == 0) continue;
    std::fill_n(errors.errors.begin() + static_cast<Index>(i) * width, width, std::numeric_limits<float>::quiet_NaN());
  }
  return errors;
}

/// Errors on the held-out rows, as large as those to come are expected to be.
training::RowErrors expected_errors(Model& model, const training::SeriesRows& series, const Execution& execution) {
  training::RowErrors errors = training::held_out_errors(model, series, execution);
  if (!model.spec().corrects_branch()) return errors;
  training::Heads heads(model);
  heads.scale(0.0);
  const training::RowErrors alone = training::held_out_errors(model, series, execution);
  const double wider = widening_by_choice(errors.errors, alone.errors);
  for (float& error : errors.errors) error = static_cast<float>(wider * static_cast<double>(error));
  return errors;
}

/// The level that so large a part of a normal distribution is below (Beasley, Springer and Moro: off by 3e-9 at most).
double normal_quantile(double level) {
  constexpr double a[] = {2.50662823884, -18.61500062529, 41.39119773534, -25.44106049637};
  constexpr double b[] = {-8.47351093090, 23.08336743743, -21.06224101826, 3.13082909833};
  constexpr double c[] = {0.3374754822726147, 0.9761690190917186, 0.1607979714918209,
                          0.0276438810333863, 0.0038405729373609, 0.0003951896511919,
                          0.0000321767881768, 0.0000002888167364, 0.0000003960315187};
  const double y = level - 0.5;
  if (std::abs(y) < 0.42) {
    const double r = y * y;
    return y * (((a[3] * r + a[2]) * r + a[1]) * r + a[0]) / ((((b[3] * r + b[2]) * r + b[1]) * r + b[0]) * r + 1.0);
  }
  const double r = std::log(-std::log(y > 0.0 ? 1.0 - level : level));
  double sum = 0.0;
  for (int i = 8; i >= 0; --i) sum = sum * r + c[i];
  return y > 0.0 ? sum : -sum;
}

/// Returns a quantile of Student's distribution, whose heavier tails allow for a scale estimated from few values (the
/// expansion of Cornish and Fisher in 1 / freedom).
double student_quantile(double level, double freedom) {
  const double z = normal_quantile(level), z2 = z * z, n = std::max(freedom, 3.0);
  return z * (1.0 + (z2 + 1.0) / (4.0 * n) + ((5.0 * z2 + 16.0) * z2 + 3.0) / (96.0 * n * n));
}

struct WeightedError {
  double error, weight;
};

/// Errors of one target: value - forecast, for each distance.
class TargetErrors {
 public:
  explicit TargetErrors(Index horizon) : errors_(static_cast<std::size_t>(horizon)) {}

  void add(std::size_t step, double error, double weight) { errors_[step].push_back({error, weight}); }

  /// How many blocks of errors there are that share no rows.
  double blocks() const {
    double sum = 0.0;
    for (const WeightedError& each : errors_.front()) sum += each.weight;
    return sum / static_cast<double>(errors_.size());
  }

  /// Roots of mean squares for each distance: those of the errors themselves as far as there are enough, and a power of
  /// the distance fitted to all of them for the rest.
  std::vector<double> scales() const {
    std::vector<double> squares, known;
    for (const auto& all : errors_) {
      double sum = 0.0, weights = 0.0;
      for (const WeightedError& each : all) {
        sum += each.weight * each.error * each.error;
        weights += each.weight;
      }
      squares.push_back(weights > 0.0 ? sum / weights : 0.0);
      known.push_back(weights / (static_cast<double>(squares.size())));  // as many blocks of that length
    }
    const auto [level, power] = fit_power(squares, known);
    std::vector<double> result;
    for (std::size_t step = 0; step < squares.size(); ++step) {
      const double smooth = level * std::pow(static_cast<double>(step + 1), power);
      result.push_back(
          std::sqrt((known[step] * squares[step] + blocks_of_prior * smooth) / (known[step] + blocks_of_prior)));
    }
    return result;
  }

  /// Quantiles of errors of all distances in units of their scales.
  std::vector<double> shape(const std::vector<double>& scales) const {
    std::vector<WeightedError> all;
    double weights = 0.0;
    for (std::size_t step = 0; step < errors_.size(); ++step) {
      if (!(scales[step] > 0.0)) continue;
      for (const WeightedError& each : errors_[step]) {
        all.push_back({each.error / scales[step], each.weight});
        weights += each.weight;
      }
    }
    std::ranges::sort(all, {}, &WeightedError::error);
    const double share = all.empty() ? 0.0 : blocks() / (blocks() + blocks_of_prior);
    std::vector<double> result;
    double below = 0.0;
    std::size_t next = 0;
    for (const double level : spread_levels) {
      while (next + 1 < all.size() && below + all[next].weight < level * weights) below += all[next++].weight;
      const double own = all.empty() ? 0.0 : all[next].error;
      result.push_back(share * own + (1.0 - share) * student_quantile(level, blocks()));
    }
    return result;
  }

  /// The errors at one distance, in the order in which they came.
  const std::vector<WeightedError>& at(std::size_t step) const { return errors_[step]; }

 private:
  struct Power {
    double level, power;
  };

  /// squares = level * distance^power by least squares of logarithms.
  static Power fit_power(const std::vector<double>& squares, const std::vector<double>& known) {
    double n = 0.0, x1 = 0.0, x2 = 0.0, y1 = 0.0, xy = 0.0;
    for (std::size_t step = 0; step < squares.size(); ++step) {
      if (!(squares[step] > 0.0)) continue;
      const double x = std::log(static_cast<double>(step + 1)), y = std::log(squares[step]), w = known[step];
      n += w;
      x1 += w * x;
      x2 += w * x * x;
      y1 += w * y;
      xy += w * x * y;
    }
    if (!(n > 0.0)) return {0.0, 0.0};
    const double variance = n * x2 - x1 * x1;
    constexpr double steepest = 3.0;  // a trend that turned grows with the square of the distance
    const double power = variance > 1e-9 * n * n ? std::clamp((n * xy - x1 * y1) / variance, 0.0, steepest) : 0.0;
    return {std::exp((y1 - power * x1) / n), power};
  }

  std::vector<std::vector<WeightedError>> errors_;  // by distance
};

/// Errors of one target as differences, and as logarithms of ratios as long as all values and forecasts are positive.
class ErrorsOfBothKinds {
 public:
  ErrorsOfBothKinds(const Column& column, Index horizon)
      : differences_(horizon), ratios_(horizon), forecasts_(static_cast<std::size_t>(horizon)) {
    can_be_relative_ = !column.logarithm;  // of which differences are ratios
  }

  /// Adds a raw value and its normalised forecast; `difference` is the normalised value minus the forecast. `column`
  /// has the scaling of their series.
  void add(std::size_t step, double raw, double forecast, double difference, const Column& column, double weight) {
    differences_.add(step, difference, weight);
    const double raw_forecast = column.raw(forecast);
    can_be_relative_ = can_be_relative_ && raw > 0.0 && raw_forecast > 0.0;
    if (!can_be_relative_) return;
    const double ratio = std::log(raw / raw_forecast);
    ratios_.add(step, ratio, weight);
    forecasts_[step].push_back(raw_forecast / column.scale);
    weights_ += weight;
    squares_ += weight * difference * difference;
    squares_of_ratios_ += weight * ratio * ratio;
    logarithms_ += weight * std::log(raw / column.scale);
  }

  /// Returns whether errors are modelled as ratios: a normal distribution of ratios must have the higher likelihood,
  /// and quantiles by ratios hardly a higher loss. The loss guards against values next to zero, whose ratios are likely
  /// whatever they promise for other values.
  bool relative() const {
    constexpr double most = 1.1;  // of the loss of differences: ratios keep quantiles of positive values positive
    if (!can_be_relative_ || !(squares_of_ratios_ > 0.0)) return false;
    return 0.5 * std::log(squares_ / weights_) >
               0.5 * std::log(squares_of_ratios_ / weights_) + logarithms_ / weights_ &&
           loss_of_ratios() <= most * loss_of_differences();
  }
  const TargetErrors& of_kind(bool relative) const { return relative ? ratios_ : differences_; }

 private:
  /// The sum of the pinball losses of quantiles of differences in units of the column's scale; `quantile` says them by
  /// the forecast, the distance and the position of their level.
  template <class Quantile>
  double pinball_loss(const Quantile& quantile) const {
    double sum = 0.0;
    for (std::size_t step = 0; step < forecasts_.size(); ++step) {
      stop_if_asked();
      for (std::size_t i = 0; i < forecasts_[step].size(); ++i) {
        const auto [difference, weight] = differences_.at(step)[i];
        for (std::size_t level = 0; level < std::size(spread_levels); ++level) {
          const double above = difference - quantile(forecasts_[step][i], step, level);
          sum += weight * std::max(spread_levels[level] * above, (spread_levels[level] - 1.0) * above);
        }
      }
    }
    return sum;
  }

  double loss_of_differences() const {
    const std::vector<double> scales = differences_.scales(), shape = differences_.shape(scales);
    return pinball_loss([&](double, std::size_t step, std::size_t level) { return scales[step] * shape[level]; });
  }
  double loss_of_ratios() const {
    const std::vector<double> scales = ratios_.scales(), shape = ratios_.shape(scales);
    std::vector<double> changes;  // [distance, level]: the ratio less one
    for (const double scale : scales) {
      for (const double each : shape) changes.push_back(std::expm1(scale * each));
    }
    return pinball_loss([&](double forecast, std::size_t step, std::size_t level) {
      return forecast * changes[step * shape.size() + level];
    });
  }

  TargetErrors differences_, ratios_;
  std::vector<std::vector<double>> forecasts_;  // by distance, as long as all values and forecasts are positive
  bool can_be_relative_;
  double weights_ = 0.0, squares_ = 0.0, squares_of_ratios_ = 0.0, logarithms_ = 0.0;
};

void add_errors(const training::SeriesRows& series, const training::RowErrors& all, double weight,
                const DataDescription& data, std::vector<ErrorsOfBothKinds>& errors) {
  const std::size_t targets = errors.size(), outputs = static_cast<std::size_t>(data.series.horizon) * targets;
  const training::Segment* segment = nullptr;
  std::vector<Column> columns;  // of the segment's targets
  for (std::size_t i = 0; i < all.errors.size(); ++i) {
    if (!std::isfinite(all.errors[i])) continue;
    if (const training::Segment& holds = series.segment_of(all.rows[i / outputs]); &holds != segment) {
      segment = &holds;
      columns = training::columns_of(data, holds, &DataDescription::targets, &Group::targets);
    }
    const std::size_t target = i % targets, step = i % outputs / targets;
    const Index row = all.rows[i / outputs] + static_cast<Index>(step) + 1;
    const double value = series.value(row, static_cast<Index>(target)), error = static_cast<double>(all.errors[i]);
    const double forecast = columns[target].normal(value) + error, bounded = columns[target].bounded(forecast);
    errors[target].add(step, value, bounded, -error - (bounded - forecast), columns[target], weight);
  }
}

/// Widths of prediction intervals at the ends of segments, by the errors of forecasts that had not seen the values.
/// Leaves out segments that are too short to be recognised.
std::vector<ErrorDistribution::Ending> endings_of(const DataDescription& data, const training::SeriesRows& series,
                                                  std::initializer_list<const training::RowErrors*> all_errors) {
  constexpr Index rows_to_know = 8;
  const Index targets = static_cast<Index>(data.targets.size()), inputs = data.input_size();
  const auto outputs = static_cast<std::size_t>(data.output_size());
  std::unordered_map<Index, std::span<const float>> errors;  // of forecasts from a row
  for (const training::RowErrors* const each : all_errors) {
    for (std::size_t i = 0; i < each->rows.size(); ++i) {
      errors[each->rows[i]] = std::span(each->errors).subspan(i * outputs, outputs);
    }
  }
  const training::SegmentDescriptions descriptions(data);
  std::vector<ErrorDistribution::Ending> endings;
  for (const training::Segment& segment : series.segments()) {
    if (segment.rows() < rows_to_know) continue;
    const DataDescription own = descriptions.of(segment);
    IntervalTracker tracker(own);
    std::vector<float> forecasts(outputs);
    for (Index row = segment.first; row < segment.end; ++row) {
      stop_if_asked();
      // Steps without a forecast have no error.
      std::ranges::fill(forecasts, std::numeric_limits<float>::quiet_NaN());
      if (const auto found = errors.find(row); found != errors.end()) {
        for (std::size_t i = 0; i < outputs; ++i) {
          const Index at = (row + 1) * targets + static_cast<Index>(i);
          if (std::isfinite(found->second[i])) forecasts[i] = series.targets()[at] + found->second[i];
        }
      }
      tracker.add(series.inputs().subspan(row * inputs, inputs), forecasts, series.known_values(row, targets));
    }
    const std::string group = segment.group < 0 ? "" : data.series.groups[segment.group].name;
    const auto last = series.targets().subspan((segment.end - rows_to_know) * targets, rows_to_know * targets);
    endings.push_back({.group = group, .values = {last.begin(), last.end()}, .widths = tracker.recent()});
  }
  return endings;
}

}  // namespace

void fit_error_distribution(Model& model, const Dataset& dataset, const Execution& execution) {
  const training::SeriesRows* const series = dataset.series_rows();
  if (series == nullptr) return;
  const training::LinearFits* const fits = training::linear_fits(dataset);
  const training::RowErrors past_errors =
      fits == nullptr ? training::RowErrors() : errors_of_shared(model, *series, fits->past_errors);
  DataDescription data = model.impl().data;
  const std::size_t targets = data.targets.size();
  std::vector<ErrorsOfBothKinds> errors;
  for (const Column& column : data.targets) errors.emplace_back(column, data.series.horizon);
  const training::RowErrors held_out = expected_errors(model, *series, execution);
  add_errors(*series, held_out, 1.0, data, errors);
  add_errors(*series, past_errors, past_weight, data, errors);
  ErrorDistribution spread;
  spread.levels.assign(std::begin(spread_levels), std::end(spread_levels));
  spread.quantiles.resize(spread.levels.size() * targets);
  spread.scales.resize(static_cast<std::size_t>(data.output_size()));
  double rows = 0.0;
  for (const training::Segment& segment : series->segments()) rows += static_cast<double>(segment.rows());
  const double wider = widening(rows);
  for (std::size_t c = 0; c < targets; ++c) {
    const bool relative = errors[c].relative();
    const TargetErrors& chosen = errors[c].of_kind(relative);
    if (!(chosen.blocks() > 0.0)) return;
    spread.relative.push_back(relative ? 1 : 0);
    const std::vector<double> scales = chosen.scales(), shape = chosen.shape(scales);
    for (std::size_t step = 0; step < scales.size(); ++step) spread.scales[step * targets + c] = scales[step];
    for (std::size_t level = 0; level < shape.size(); ++level) {
      spread.quantiles[level * targets + c] = wider * shape[level];
    }
  }
  data.series.errors = std::move(spread);
  data.series.errors.endings = endings_of(data, *series, {&past_errors, &held_out});
  model.impl().data.series.errors = std::move(data.series.errors);
}

}  // namespace penstock
