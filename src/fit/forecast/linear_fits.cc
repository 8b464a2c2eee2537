#include "forecast/linear_fits.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel_tasks.h"
#include "data/series/series_plan.h"
#include "forecast/linear/origins.h"
#include "penstock/data_description.h"
#include "penstock/work.h"

namespace penstock::training {
namespace {

/// The rows of one target before `ends` and of the inputs that are known in advance, segment by segment.
struct PastRows {
  std::vector<Covariates> covariates() const {
    std::vector<Covariates> result;
    for (const auto& segment : x) result.emplace_back(segment.begin(), segment.end());
    return result;
  }

  std::vector<std::vector<double>> z;               // [segments][rows]
  std::vector<std::vector<std::vector<double>>> x;  // [segments][known][rows]
};

constexpr std::size_t fits_of_plans = 2;  // of the training part, of all rows

/// Fits linear forecasts to rows of a series, or of one group.
class LinearFitter {
 public:
  LinearFitter(const SeriesRows& rows, const DataDescription& data, std::optional<Index> group = std::nullopt)
      : rows_(rows),
        data_(data),
        segments_(rows.segments()),
        work_("fitting linear forecasts",
              static_cast<Index>(data.targets.size() * (fits_of_plans + std::size(shares) - 1))) {
    if (group) std::erase_if(segments_, [&](const Segment& segment) { return segment.group != *group; });
    for (const Column& input : data.inputs) {
      if (input.ahead == 1) known_.push_back(data.now_of(input));
    }
  }

  /// The linear forecast of these plans, fitted to the rows of each segment before `ends`.
  Autoregression fit(const LinearPlans& plans, const std::vector<Index>& ends) {
    std::vector<LinearForecast> forecasts(targets_);
    Autoregression result;
    for (std::size_t c = 0; c < targets_; ++c) {
      work_.count();
      if (!plans[c]) continue;
      PastRows past = past_rows(ends, c);
      std::optional<double> zero = data::zero_of(data_.targets[c], data_.series.groups.size());
      if (plans[c]->effects) {
        zero.reset();  // what effects leave of nothing differs from row to row
        const auto x = past.covariates();
        const auto effects = estimate_effects(spans_of(past.z), x, *plans[c]->effects);
        past.z = without_effects(spans_of(past.z), x, effects);
        result.effects.resize(inputs_ * targets_, 0.0f);
        for (std::size_t k = 0; k < effects.size(); ++k) {
          result.effects[known_[k] * targets_ + c] = static_cast<float>(effects[k]);
        }
      }
      forecasts[c] = fit_linear_forecast(spans_of(past.z), plans[c]->choice, zero);
      result.lags = std::max(result.lags, forecasts[c].lags);
    }
    result.weights.assign(static_cast<std::size_t>(result.lags * width_), 0.0f);
    result.bias.assign(static_cast<std::size_t>(width_), 0.0f);
    for (std::size_t c = 0; c < targets_; ++c) {
      const LinearForecast& forecast = forecasts[c];
      for (Index h = 0; plans[c] && h < data_.series.horizon; ++h) {
        const auto at = static_cast<std::size_t>(h) * targets_ + c;
        result.bias[at] = static_cast<float>(forecast.bias[h]);
        for (Index k = 0; k < forecast.lags; ++k) {
          const double last = k == 0 ? 1.0 : 0.0;  // which the model adds anyway
          result.weights[k * width_ + at] = static_cast<float>(forecast.weights[k * data_.series.horizon + h] - last);
        }
      }
    }
    return result;
  }

  /// Errors of fits to some beginnings of the training part, each up to the end of the next.
  RowErrors past_errors() {
    constexpr Index most_origins = 200;  // behind each beginning
    struct Beginning {
      std::vector<Index> firsts, ends;  // rows of each segment that are forecast
      Autoregression linear = {};
    };
    std::vector<Beginning> beginnings;
    for (std::size_t i = 0; i + 1 < std::size(shares); ++i) {
      beginnings.push_back({ends_of(shares[i]), ends_of(shares[i + 1])});
      Index longest = 0;
      for (std::size_t s = 0; s < segments_.size(); ++s) {
        longest = std::max(longest, beginnings.back().firsts[s] - segments_[s].first);
      }
      if (longest <= 2 * data_.series.horizon) beginnings.pop_back();
    }
    side_by_side(rows_.threads(), beginnings.size(), [&](std::size_t i) {
      Beginning& latest_first = beginnings[beginnings.size() - 1 - i];  // which takes longest
      latest_first.linear = fit(rows_.linear_plans(), latest_first.firsts);
    });
    RowErrors errors;
    for (const auto& [firsts, ends, linear] : beginnings) {
      Index origins = 0;
      for (std::size_t s = 0; s < firsts.size(); ++s) origins += ends[s] - firsts[s];
      const Index stride = std::max<Index>(1, origins / most_origins);
      for (std::size_t s = 0; s < firsts.size(); ++s) {
        const Index first = std::max(firsts[s], segments_[s].first + linear.lags) - 1;
        for (Index row = first; row + 1 < ends[s]; row += stride) add_errors(linear, segments_[s], row, errors);
      }
    }
    return errors;
  }

  /// The end of so large a part of what each segment trains on.
  std::vector<Index> ends_of(double share) const {
    std::vector<Index> ends;
    for (const Segment& segment : segments_) {
      ends.push_back(segment.first + static_cast<Index>(share * static_cast<double>(segment.training_rows())));
    }
    return ends;
  }

  /// The end of all rows of each segment.
  std::vector<Index> ends_of_all() const {
    std::vector<Index> ends;
    for (const Segment& segment : segments_) ends.push_back(segment.end);
    return ends;
  }

 private:
  static constexpr double shares[] = {0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};  // of the training part, in past_errors()

  PastRows past_rows(const std::vector<Index>& ends, std::size_t target) const {
    PastRows past;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      auto& values = past.z.emplace_back();
      auto& known = past.x.emplace_back(known_.size());
      for (auto row = static_cast<std::size_t>(segments_[i].first); row < static_cast<std::size_t>(ends[i]); ++row) {
        values.push_back(static_cast<double>(rows_.targets()[row * targets_ + target]));
        for (std::size_t k = 0; k < known.size(); ++k) {
          known[k].push_back(static_cast<double>(rows_.inputs()[row * inputs_ + known_[k]]));
        }
      }
    }
    return past;
  }

  /// Returns the residual of a target in a row after the effects of inputs.
  float rest_of(const Autoregression& linear, Index row, Index target) const {
    const auto at = static_cast<std::size_t>(row), c = static_cast<std::size_t>(target);
    float rest = rows_.targets()[at * targets_ + c];
    if (linear.effects.empty()) return rest;
    for (const std::size_t i : known_) rest -= linear.effects[i * targets_ + c] * rows_.inputs()[at * inputs_ + i];
    return rest;
  }

  /// Errors of a linear forecast from one row.
  void add_errors(const Autoregression& linear, const Segment& segment, Index row, RowErrors& to) const {
    to.rows.push_back(row);
    for (Index i = 0; i < width_; ++i) {
      const auto targets = static_cast<Index>(targets_);
      const Index c = i % targets, ahead = row + 1 + i / targets;
      float error = std::numeric_limits<float>::quiet_NaN();
      if (rows_.linear_plans()[c] && ahead < segment.training_end && rows_.is_known(ahead, c)) {
        float forecast = rest_of(linear, row, c) + linear.bias[i];
        for (Index k = 0; k < linear.lags; ++k)
          forecast += linear.weights[k * width_ + i] * rest_of(linear, row - k, c);
        error = forecast - rest_of(linear, ahead, c);
      }
      to.errors.push_back(error);
    }
  }

  const SeriesRows& rows_;
  const DataDescription& data_;
  std::vector<Segment> segments_;
  std::size_t targets_ = data_.targets.size(), inputs_ = data_.inputs.size();
  Index width_ = data_.output_size();
  std::vector<std::size_t> known_;  // inputs that are the values of columns known in advance
  Work work_;
};

std::shared_ptr<const LinearFits> fit_to(const SeriesRows& rows, const DataDescription& data) {
  LinearFitter fitter(rows, data);
  const LinearPlans by_all_rows = rows.plan_by_all_rows();
  std::array<Autoregression, fits_of_plans> fits;
  side_by_side(rows.threads(), fits.size(), [&](std::size_t i) {
    fits[i] =
        i == 0 ? fitter.fit(rows.linear_plans(), fitter.ends_of(1.0)) : fitter.fit(by_all_rows, fitter.ends_of_all());
  });
  const Index lags = std::max(fits[0].lags, fits[1].lags);
  for (Autoregression& each : fits) {
    each.weights.resize(static_cast<std::size_t>(lags * data.output_size()), 0.0f);
    each.lags = lags;
  }
  return std::make_shared<const LinearFits>(LinearFits{std::move(fits[0]), std::move(fits[1]), fitter.past_errors()});
}

}  // namespace

const LinearFits* linear_fits(const Dataset& data) {
  if (!has_linear_forecast(data)) return nullptr;
  const SeriesRows& rows = *data.series_rows();
  return &rows.linear_fits([&] { return fit_to(rows, data.description()); });
}

Autoregression fit_group(const Dataset& data, Index group, bool all_rows) {
  const SeriesRows& rows = *data.series_rows();
  LinearFitter fitter(rows, data.description(), group);
  return fitter.fit(rows.plan_of_group(group, all_rows), all_rows ? fitter.ends_of_all() : fitter.ends_of(1.0));
}

}  // namespace penstock::training
