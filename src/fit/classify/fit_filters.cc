#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "classify/filter_means.h"
#include "data/batch.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock {

namespace training {

namespace {

// Filters of all dilations together: four times as many were right no more often in cross-validation of eight training
// parts, and took four times as long.
constexpr Index most_filters = 1024;
// Fewer held-out sequences than these tell nothing about what the layers are worth.
constexpr Index fewest_to_judge = 30;

/// Dilations whose filters span no more than a sequence.
Index dilations_for(Index length) {
  constexpr Index most = 7;
  Index count = 1;
  while (count < most && (nn::filter_taps - 1) * (Index{1} << count) < length) ++count;
  return count;
}

/// Returns the filters of each dilation, in pairs: as many pairs read values as read differences.
ClosedFormBranchFields fields_for(const Sequences& sequences) {
  const Index dilations = dilations_for(sequences.median_length());
  return {.filters = most_filters / dilations / 4 * 4, .dilations = dilations};
}

/// Makes the bank of a model say what a classifier says of means, so many times.
void set_classifier(Model& model, const RidgeClassifier& classifier, double share) {
  Model::Impl& impl = model.impl();
  const nn::FilterBranch branch(impl.spec.branch_fields());
  const Index classes = classifier.classes, kept = classes + 1, filters = branch.filters_of_bank();
  const auto parameter = [&](const std::string& name) {
    return impl.parameters->value(*impl.parameters->layout().find(name));
  };
  const std::vector<double> weights = weights_of_filters(classifier);
  for (Index i = 0; i < branch.banks(); ++i) {
    const std::string name = nn::filter_prefix(i) + ".evidence";
    const std::span<float> weight = parameter(name + ".weight");
    for (Index c = 0; c < classes; ++c) {
      for (Index f = 0; f < filters; ++f) {
        weight[c * filters + f] = static_cast<float>(share * weights[c * classifier.features + i * filters + f]);
      }
    }
    if (i == 0) parameter(name + ".bias")[classes] = static_cast<float>(nn::step_weight);
  }
  // Gates z that are nearly closed, then candidates: each value by itself.
  const std::span<float> sum = parameter("filters.sum.weight_ih");
  for (Index c = 0; c < kept; ++c) sum[(kept + c) * kept + c] = 1.0f;
  std::ranges::fill(parameter("filters.sum.bias_ih").first(static_cast<std::size_t>(kept)),
                    static_cast<float>(nn::forgetting_logit));
  std::ranges::fill(parameter("filters.norm.gain"), 1.0f);
  // The norm makes of the number of steps the root of the width.
  const double mean = nn::step_weight / std::sqrt(static_cast<double>(kept));
  const std::span<float> output = parameter("filters.output.weight"), bias = parameter("filters.output.bias");
  for (Index c = 0; c < classes; ++c) {
    output[c * kept + c] = static_cast<float>(mean);
    bias[c] = static_cast<float>(share * classifier.intercept[c]);
  }
  impl.parameters->changed();
}

void scale_heads(Model& model, double share) {
  nn::Parameters<float>& parameters = *model.impl().parameters;
  for (const nn::ParameterEntry& entry : parameters.layout().entries()) {
    if (!entry.name.ends_with("head.weight") && !entry.name.ends_with("head.bias")) continue;
    for (float& value : parameters.value(entry)) value = static_cast<float>(share * static_cast<double>(value));
  }
  parameters.changed();
}

/// Returns a model's logits at the end of each held-out sequence, [n, classes].
std::vector<double> held_out_logits(const Model& model, const Sequences& sequences, const Execution& execution) {
  const auto classes = static_cast<std::size_t>(model.data().output_size());
  std::vector<double> logits;
  sequences.each(Sequences::Part::held_out, Sequences::most_positions, [&](const Example& example) {
    ModelState state = model.state(example.rows);
    std::vector<float> outputs(static_cast<std::size_t>(example.rows * example.steps) * classes);
    model.forward(example.rows, example.steps, example.features, outputs, state, execution);
    for (Index b = 0; b < example.rows; ++b) {
      const auto last = static_cast<std::size_t>(b * example.steps + length_of(example, b) - 1);
      const auto begin = outputs.begin() + static_cast<std::ptrdiff_t>(last * classes);
      logits.insert(logits.end(), begin, begin + static_cast<std::ptrdiff_t>(classes));
    }
  });
  return logits;
}

/// The shares of both whose sum has the least cross-entropy.
FilterShares best_shares(std::span<const double> layers, std::span<const double> filters,
                         std::span<const std::int32_t> labels, Index classes) {
  constexpr int quarters = 4;
  FilterShares best;
  double least = std::numeric_limits<double>::infinity();
  std::vector<double> logits(layers.size());
  for (int a = 0; a <= quarters; ++a) {
    for (int b = 0; b <= quarters; ++b) {
      const FilterShares shares{.layers = a / static_cast<double>(quarters),
                                .filters = b / static_cast<double>(quarters)};
      for (std::size_t i = 0; i < logits.size(); ++i) {
        logits[i] = shares.layers * layers[i] + shares.filters * filters[i];
      }
      const double loss = cross_entropy(logits, labels, classes);
      if (loss < least) least = loss, best = shares;
    }
  }
  return best;
}

std::vector<double> logits_of(const RidgeClassifier& classifier, const Means& means) {
  const auto classes = static_cast<std::size_t>(classifier.classes);
  std::vector<double> logits(means.count() * classes);
  for (std::size_t i = 0; i < means.count(); ++i) {
    classifier.logits(means.of(i), std::span(logits).subspan(i * classes, classes));
  }
  return logits;
}

/// The parameters of a model without filters, with room for some.
Model with_room(const Model& from, const ClosedFormBranchFields& filters) {
  ModelSpec spec = from.spec();
  spec.branch = closed_form_branch(filters);
  Model to(spec, from.data());
  nn::Parameters<float>& parameters = *to.impl().parameters;
  std::ranges::fill(parameters.values(), 0.0f);
  nn::copy_shared(*from.impl().parameters, parameters);
  to.impl().origin = from.impl().origin;
  return to;
}

}  // namespace

}  // namespace training

Model add_filters(const Model& model, const Dataset& data, FilterShares& shares, std::uint64_t seed,
                  const Execution& execution) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  require(data.labelled_passes() != nullptr, "data must be labelled sequences to fit filters to");
  require(model.spec().branch == nullptr, "model must be one without filters, it has {} of each dilation",
          model.spec().branch_fields().filters);
  training::check_same_data(model.impl().data, data.description());
  const Sequences sequences(data);
  const ClosedFormBranchFields filters = fields_for(sequences);
  Model wider = with_room(model, filters);
  FilterMeans bank(nn::FilterBranch(filters), wider.data(), execution);
  bank.draw(sequences, seed);
  const RidgeClassifier classifier = bank.fit(bank.means(sequences, Sequences::Part::training));
  const Means held_out = bank.means(sequences, Sequences::Part::held_out);
  shares = {.layers = 0.0, .filters = 1.0};
  if (!filters_stand_alone(data)) {
    shares = best_shares(held_out_logits(model, sequences, execution), logits_of(classifier, held_out), held_out.labels,
                         classifier.classes);
  }
  bank.give_to(wider);
  set_classifier(wider, classifier, shares.filters);
  scale_heads(wider, shares.layers);
  return wider;
}

bool filters_stand_alone(const Dataset& data) {
  return data.description().labels_sequences() && data.held_out_steps() < training::fewest_to_judge;
}

Model fit_filters(const Dataset& data, std::uint64_t seed, const Execution& execution) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  require(data.labelled_passes() != nullptr, "data must be labelled sequences to fit filters to");
  const Sequences sequences(data);
  const ClosedFormBranchFields filters = fields_for(sequences);
  Model model({.width = 1, .blocks = 0, .branch = closed_form_branch(filters)}, data.description());
  std::ranges::fill(model.impl().parameters->values(), 0.0f);
  FilterMeans bank(nn::FilterBranch(filters), model.data(), execution);
  bank.draw(sequences, seed);
  bank.give_to(model);
  set_classifier(model, bank.fit(bank.means(sequences, Sequences::Part::training)), 1.0);
  return model;
}

void refit_filters(Model& model, const Dataset& data, const FilterShares& shares, const Execution& execution) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  const ClosedFormBranchFields filters = model.spec().branch_fields();
  if (filters.filters == 0 || data.labelled_passes() == nullptr || data.held_out_steps() == 0) return;
  model.impl().detach_sessions();
  const Sequences sequences(data);
  FilterMeans bank(nn::FilterBranch(filters), model.data(), execution);
  bank.take_from(model);
  Means all = bank.means(sequences, Sequences::Part::training);
  all.append(bank.means(sequences, Sequences::Part::held_out));
  set_classifier(model, bank.fit(all), shares.filters);
}

}  // namespace penstock
