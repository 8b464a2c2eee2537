#include <algorithm>

#include "data/series/series_rows.h"
#include "forecast/heads.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

/// Returns whether the layers read more than a linear forecast, which sees only its own column. The place of a date in
/// the week or the year does not count: the linear forecast has it as its season.
bool layers_read_more(const DataDescription& data) {
  return data.reads_ahead() || data.targets.size() > 1 || std::ranges::any_of(data.inputs, [&](const Column& input) {
           const bool calendar = input.reads_dates() && input.feature != Feature::elapsed;
           return !calendar && std::ranges::find(data.targets, input.name, &Column::name) == data.targets.end();
         });
}

}  // namespace

bool linear_stands_alone(const Dataset& dataset) {
  // These rows would choose the best of some forty states of the layers. If they are few, chance chooses.
  constexpr Index fewest_held_out = 200;
  const training::SeriesRows* const series = dataset.series_rows();
  return training::has_linear_forecast(dataset) && series->held_out() > 0 && series->held_out() < fewest_held_out &&
         !layers_read_more(dataset.description());
}

}  // namespace penstock
