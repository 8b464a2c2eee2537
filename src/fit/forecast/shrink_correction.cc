#include <algorithm>
#include <cmath>

#include "data/series/series_rows.h"
#include "forecast/heads.h"
#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

/// Sums over one block of forecasts: of corrections times what they should have been, and of their squares.
struct BlockSums {
  double products = 0.0, squares = 0.0;
};

/// The share of corrections that pays, from errors [n, width] with them and without.
double share_that_pays(std::span<const float> with, std::span<const float> without, std::size_t block_values) {
  std::vector<BlockSums> blocks;
  for (std::size_t begin = 0; begin < with.size(); begin += block_values) {
    BlockSums sums;
    for (std::size_t i = begin; i < std::min(begin + block_values, with.size()); ++i) {
      if (!std::isfinite(with[i])) continue;
      const double correction = static_cast<double>(with[i]) - static_cast<double>(without[i]);
      sums.products -= correction * static_cast<double>(without[i]);
      sums.squares += correction * correction;
    }
    if (sums.squares > 0.0) blocks.push_back(sums);
  }
  constexpr std::size_t fewest_blocks = 4;  // whose spread says something
  if (blocks.size() < fewest_blocks) return 0.0;
  BlockSums all;
  for (const BlockSums& block : blocks) {
    all.products += block.products;
    all.squares += block.squares;
  }
  const double share = all.products / all.squares;
  double variance = 0.0;
  for (const BlockSums& block : blocks) variance += std::pow(block.products - share * block.squares, 2.0);
  const auto n = static_cast<double>(blocks.size());
  variance *= n / (n - 1.0) / (all.squares * all.squares);
  // The estimate of James and Stein (1961), with twice the variance as these weights were chosen by the same rows.
  if (!(share > 0.0) || share * share <= 2.0 * variance) return 0.0;
  return std::min(1.0, share * (1.0 - 2.0 * variance / (share * share)));
}

}  // namespace

double shrink_correction(Model& model, const Dataset& dataset, const Execution& execution) {
  const training::SeriesRows* const series = dataset.series_rows();
  if (!model.spec().corrects_branch() || series == nullptr || series->held_out() == 0) return 1.0;
  training::Heads heads(model);
  if (linear_stands_alone(dataset)) {
    heads.leave(0.0);
    return 0.0;
  }
  const std::vector<float> with = training::held_out_errors(model, *series, execution).errors;
  heads.scale(0.0);
  const std::vector<float> without = training::held_out_errors(model, *series, execution).errors;
  // Forecasts from rows nearer to each other than the horizon are of the same rows in part.
  const Index block = model.data().series.horizon * model.data().output_size();
  const double share = share_that_pays(with, without, static_cast<std::size_t>(block));
  heads.leave(share);
  return share;
}

}  // namespace penstock
