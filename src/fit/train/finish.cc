#include <fmt/format.h>

#include <utility>
#include <vector>

#include "forecast/heads.h"
#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock {

Finished finish_training(Model& model, const Dataset& data, const FinishOptions& options, const Execution& execution) {
  Finished result;
  if (data.series_rows() != nullptr && data.held_out_steps() > 0) {
    training::Heads heads(model);  // an error undoes what shrink_correction() has done
    std::vector<Group>& groups = model.impl().data.series.groups;
    const std::vector<Group> before = groups;
    try {
      if (options.shrink) result.share = shrink_correction(model, data, execution);
      choose_own_forecasts(model, data, execution);
      fit_error_distribution(model, data, execution);
    } catch (...) {
      groups = before;
      throw;
    }
    heads.leave(result.share);
  }
  result.changed = result.share < 1.0 || !model.data().series.own_forecasts().empty();
  if (!options.filters || !data.description().labels_sequences()) return result;
  Model wider = add_filters(model, data, result.filter_shares, options.seed, execution);
  model = std::move(wider);
  result.filters = result.changed = true;
  return result;
}

std::string describe_weight(const Finished& finished, bool trained) {
  const auto& [layers, filters] = finished.filter_shares;
  const char* const others = finished.filters ? "the filters alone" : "the linear forecast alone";
  if (!trained) return fmt::format("{}: no layers were trained", others);
  const char* const held_out = finished.filters ? "held-out sequences" : "held-out rows";
  if (!finished.layers_count()) return fmt::format("{}: the layers showed no gain on the {}", others, held_out);
  if (finished.share < 1.0) {
    return fmt::format(
        "{:.3g} % of the layers' correction to the linear forecast: a larger share showed no gain on the {}",
        100.0 * finished.share, held_out);
  }
  if (!finished.filters) return {};
  if (filters == 0.0) return fmt::format("the layers alone: the filters showed no gain on the {}", held_out);
  return fmt::format("{:g} of the layers' answer and {:g} of the filters', chosen on the {}", layers, filters,
                     held_out);
}

void refit(Model& model, const Dataset& data, const Finished& finished, const Execution& execution) {
  refit_autoregression(model, data);
  refit_own_forecasts(model, data);
  if (finished.filters) refit_filters(model, data, finished.filter_shares, execution);
}

}  // namespace penstock
