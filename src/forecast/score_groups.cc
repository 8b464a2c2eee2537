#include <algorithm>
#include <cmath>

#include "penstock/forecast/score.h"

namespace penstock {

namespace {

/// Means of errors, weighted by the number of values they are of.
class MeanErrors {
 public:
  void add(const ForecastErrors& errors, double count) {
    squares_ += count * errors.rmse * errors.rmse;
    absolute_ += count * errors.mae;
    relative_ += count * errors.smape;
    count_ += count;
    if (!(errors.mase > 0.0)) return;
    scaled_ += count * errors.mase;
    scaled_count_ += count;
  }
  ForecastErrors errors() const {
    const double n = std::max(count_, 1.0);
    return {.rmse = std::sqrt(squares_ / n),
            .mae = absolute_ / n,
            .mase = scaled_count_ > 0.0 ? scaled_ / scaled_count_ : 0.0,
            .smape = relative_ / n};
  }

 private:
  double squares_ = 0.0, absolute_ = 0.0, relative_ = 0.0, count_ = 0.0, scaled_ = 0.0, scaled_count_ = 0.0;
};

const Rival* find_rival(const ColumnScore& score, const std::string& name) {
  const auto found = std::ranges::find(score.rivals, name, &Rival::name);
  return found == score.rivals.end() ? nullptr : &*found;
}

QuantileScore mean_quantiles(std::span<const GroupScore> groups, std::size_t column, double count) {
  QuantileScore mean{.levels = groups.front().columns[column].quantiles->levels};
  for (const GroupScore& group : groups) {
    const ColumnScore& score = group.columns[column];
    const double share = static_cast<double>(score.scored) / count;
    mean.coverage += share * score.quantiles->coverage;
    mean.pinball += share * score.quantiles->pinball;
  }
  return mean;
}

ColumnScore score_column(std::span<const GroupScore> groups, std::size_t column) {
  const ColumnScore& first = groups.front().columns[column];
  ColumnScore all;
  all.column = first.column;
  all.season = first.season;
  MeanErrors model;
  for (const GroupScore& group : groups) {
    const ColumnScore& score = group.columns[column];
    all.scored += score.scored;
    model.add(score.model, static_cast<double>(score.scored));
  }
  all.model = model.errors();
  for (const Rival& rival : first.rivals) {
    MeanErrors errors;
    bool everywhere = true;
    for (const GroupScore& group : groups) {
      const ColumnScore& score = group.columns[column];
      const Rival* const same = find_rival(score, rival.name);
      everywhere = everywhere && same != nullptr;
      if (same != nullptr) errors.add(same->errors, static_cast<double>(score.scored));
    }
    if (everywhere) all.rivals.push_back({rival.name, errors.errors()});
  }
  if (first.quantiles) all.quantiles = mean_quantiles(groups, column, static_cast<double>(all.scored));
  return all;
}

}  // namespace

std::vector<ColumnScore> score_all(std::span<const GroupScore> groups) {
  if (groups.size() == 1) return groups.front().columns;
  std::vector<ColumnScore> all;
  for (std::size_t column = 0; !groups.empty() && column < groups.front().columns.size(); ++column) {
    all.push_back(score_column(groups, column));
  }
  return all;
}

}  // namespace penstock
