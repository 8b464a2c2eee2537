#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/random.h"
#include "graph/program.h"
#include "nn/filter_bank.h"
#include "nn/model_impl.h"
#include "penstock/train.h"
#include "train/batch.h"
#include "train/device_batch.h"
#include "train/labelled_batches.h"
#include "train/ridge_classifier.h"

namespace penstock {

namespace training {

namespace {

// Filters of all dilations together: four times as many were right no more often in cross-validation of eight training
// parts, and took four times as long.
constexpr Index most_filters = 1024;
// Sequences and positions that the classifier is fitted to; more change little and take minutes.
constexpr Index most_sequences = 10000;
constexpr Index most_positions = Index{1} << 22;
// Of a batch, so that what a thousand filters say of it fits into some hundred megabytes.
constexpr Index positions_of_batch = 1 << 14;
// Fewer held-out sequences than these tell nothing about what the layers are worth.
constexpr Index fewest_to_judge = 30;

/// The sequences of one part of a dataset, batch by batch, and how many there are at most.
class Sequences {
 public:
  enum class Part { training, held_out };

  Sequences(const Dataset& data, Index longest)
      : data_(data), rows_(std::clamp<Index>(positions_of_batch / longest, 1, 32)) {}

  /// Calls `use` with every batch until enough has been seen.
  template <class Use>
  void each(Part part, Index enough, const Use& use) const {
    Example example;
    Index sequences = 0, positions = 0;
    for (Index i = 0; sequences < most_sequences && positions < enough && batch(part, i, example); ++i) {
      use(example);
      sequences += example.rows;
      positions += example.rows * example.steps;
    }
  }

 private:
  bool batch(Part part, Index i, Example& example) const {
    return part == Part::training ? LabelledBatches::of(data_)->training(i, rows_, example)
                                  : data_.validation(i, rows_, 1, example);
  }

  const Dataset& data_;
  Index rows_;
};

Index length_of(const Example& example, Index row) {
  return example.lengths.empty() ? example.steps : example.lengths[static_cast<std::size_t>(row)];
}

/// Of a training sequence in the middle of all by length, and of the longest.
struct Lengths {
  Index median = 1, longest = 1;
};

Lengths lengths_of(const Dataset& data) {
  std::vector<Index> all;
  Example example;
  for (Index i = 0; i < most_sequences && LabelledBatches::of(data)->training(i, 1, example); ++i) {
    all.push_back(length_of(example, 0));
  }
  std::ranges::sort(all);
  return {all[all.size() / 2], all.back()};
}

/// Dilations whose filters span no more than a sequence.
Index dilations_for(Index length) {
  constexpr Index most = 7;
  Index count = 1;
  while (count < most && (nn::filter_taps - 1) * nn::dilation_of(count) < length) ++count;
  return count;
}

/// The filters of one dilation by themselves, with parameters of their own under the names that the bank has for them.
class Filters {
 public:
  Filters(const ModelSpec& spec, const DataDescription& data, Index dilation, const Execution& execution)
      : spec_(spec),
        data_(data),
        dilation_(dilation),
        execution_(execution),
        parameters_(layout()),
        batch_(parameters_.weights()->queue()),
        copied_(parameters_.weights()->queue()) {}

  nn::Parameters<float>& parameters() { return parameters_; }
  std::span<float> parameter(const std::string& name) { return parameters_.value(*parameters_.layout().find(name)); }

  /// [B, T, 2 * filters] or [B, T, filters] of a batch; good until the next one.
  std::span<const float> run(const Example& example, nn::FilterValues wanted) {
    const ops::Target target = target_of(example, execution_);
    if (!workspace_ || wanted != wanted_ || !same_shape(workspace_->program().target(), target)) {
      nn::GraphBuilder builder(target);
      nn::add_filters(builder, spec_, data_, dilation_, wanted, graph::Home::outputs);
      state_.assign(static_cast<std::size_t>(example.rows * builder.state_size()), 0.0f);
      workspace_.emplace(std::make_shared<graph::Program>(builder.take_graph(), target),
                         parameters_.weights()->shared_queue());
      workspace_->bind(parameters_.weights());
      wanted_ = wanted;
    }
    std::ranges::fill(state_, 0.0f);
    const Index width = wanted == nn::FilterValues::sums ? 2 * spec_.filters : spec_.filters;
    outputs_.resize(static_cast<std::size_t>(example.rows * example.steps * width));
    batch_.reserve(example);
    batch_.start_upload(example, staging_, copied_);
    batch_.bind(*workspace_);
    workspace_->bind(graph::Home::outputs, outputs_.data());
    workspace_->bind(graph::Home::state_in, state_.data());
    workspace_->bind(graph::Home::state_out, state_.data());
    const ops::Call call = batch_.call(example, execution_);
    workspace_->refresh(call);
    workspace_->run(call);
    return outputs_;
  }

 private:
  nn::ParameterLayout layout() const {
    nn::GraphBuilder builder({});
    nn::add_filters(builder, spec_, data_, dilation_, nn::FilterValues::sums, graph::Home::outputs);
    return builder.layout();
  }

  ModelSpec spec_;
  DataDescription data_;
  Index dilation_;
  Execution execution_;
  nn::Parameters<float> parameters_;
  DeviceBatch batch_;
  std::optional<ops::StagingBuffer> staging_;
  ops::Marker copied_;
  std::optional<graph::Workspace> workspace_;
  nn::FilterValues wanted_ = nn::FilterValues::sums;
  std::vector<float> state_, outputs_;
};

/// The taps of filter `number`: three of nine are 2, the others -1, so that they sum to nothing and levels do not count
/// (Dempster, Schmidt and Webb 2021). There are 84 of them.
std::array<float, nn::filter_taps> taps_of(Index number) {
  std::array<float, nn::filter_taps> taps;
  taps.fill(-1.0f);
  constexpr float high = 2.0f;
  Index left = number % 84;  // NOLINT(readability-magic-numbers): 9 * 8 * 7 / (3 * 2)
  for (std::size_t i = 0; i < taps.size(); ++i) {
    for (std::size_t j = i + 1; j < taps.size(); ++j) {
      for (std::size_t k = j + 1; k < taps.size(); ++k) {
        if (left-- == 0) taps[i] = taps[j] = taps[k] = high;
      }
    }
  }
  return taps;
}

/// Each input once, or random mixtures of them where there are more than channels.
void draw_channels(const DataDescription& data, std::span<float> spread, Random& random) {
  const Index inputs = data.input_size(), channels = nn::filter_channels(data);
  const double deviation = 1.0 / std::sqrt(static_cast<double>(inputs));
  for (Index p = 0; p < channels; ++p) {
    for (Index i = 0; i < inputs; ++i) {
      const double one = i == p ? 1.0 : 0.0;
      const auto weight = static_cast<float>(inputs == channels ? one : deviation * random.normal());
      for (Index tap = 0; tap < nn::filter_taps; ++tap) spread[(tap * channels + p) * inputs + i] = weight;
    }
  }
}

/// Which channels a filter reads: few mostly.
std::vector<Index> draw_subset(Index channels, Random& random) {
  constexpr Index most = 9;
  const double range = std::log2(static_cast<double>(std::min(channels, most)) + 1.0);
  const auto count = std::min(channels, static_cast<Index>(std::exp2(random.uniform(0.0, range))));
  std::vector<Index> all(static_cast<std::size_t>(channels));
  for (Index i = 0; i < channels; ++i) all[i] = i;
  for (Index i = 0; i < count; ++i) std::swap(all[i], all[i + random.below(channels - i)]);
  all.resize(static_cast<std::size_t>(count));
  return all;
}

/// Taps and channels of every filter, as yet without a threshold.
void draw_filters(Filters& filters, const ModelSpec& spec, const DataDescription& data, Index dilation,
                  Random& random) {
  const std::string name = nn::filter_prefix(dilation);
  const Index channels = nn::filter_channels(data), width = nn::filter_taps * channels;
  const std::span<float> delay = filters.parameter(name + ".delay.weight");
  for (Index tap = 0; tap < nn::filter_taps; ++tap) {
    std::fill_n(delay.begin() + tap * nn::dilation_of(dilation) * width + tap * channels, channels, 1.0f);
  }
  const std::span<float> combine = filters.parameter(name + ".combine.weight");
  for (Index f = 0; f < spec.filters; ++f) {
    const auto taps = taps_of(f);
    for (const Index channel : draw_subset(channels, random)) {
      for (Index tap = 0; tap < nn::filter_taps; ++tap) {
        combine[f * width + tap * channels + channel] = taps[static_cast<std::size_t>(tap)];
      }
    }
  }
  // What a gate lets pass is a one, so that the activation is silu of the gate alone.
  const std::span<float> bias = filters.parameter(name + ".combine.bias");
  std::fill_n(bias.begin() + spec.filters, spec.filters, 1.0f);
  filters.parameters().changed();
}

/// What each filter says of some training sequences: [filters][positions].
std::vector<std::vector<float>> sample_sums(Filters& filters, Index count, const Sequences& sequences) {
  constexpr Index sampled = 1 << 13;  // positions
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(count));
  sequences.each(Sequences::Part::training, 2 * sampled, [&](const Example& example) {
    const std::span<const float> values = filters.run(example, nn::FilterValues::sums);
    const Index every = std::max<Index>(1, example.rows * example.steps / sampled);
    for (Index b = 0, seen = 0; b < example.rows; ++b) {
      for (Index t = 0; t < length_of(example, b); ++t, ++seen) {
        if (seen % every != 0) continue;
        const float* const row = values.data() + (b * example.steps + t) * 2 * count;
        for (Index f = 0; f < count; ++f) sums[f].push_back(row[f]);
      }
    }
  });
  return sums;
}

/// Thresholds are quantiles of what a filter says, and gates are steep beside its deviation.
void fit_thresholds(Filters& filters, const ModelSpec& spec, Index dilation, const Sequences& sequences,
                    Random& random) {
  constexpr double steepness = 4.0;
  constexpr double golden = 0.6180339887498949;  // multiples of it spread evenly over (0, 1)
  const std::string name = nn::filter_prefix(dilation) + ".combine";
  const std::span<float> weight = filters.parameter(name + ".weight"), bias = filters.parameter(name + ".bias");
  const Index width = static_cast<Index>(weight.size()) / (2 * spec.filters);
  auto sums = sample_sums(filters, spec.filters, sequences);
  const double first = random.uniform();
  for (Index f = 0; f < spec.filters; ++f) {
    std::vector<float>& values = sums[f];
    double mean = 0.0, squares = 0.0;
    for (const float value : values) mean += static_cast<double>(value) / static_cast<double>(values.size());
    for (const float value : values) squares += std::pow(static_cast<double>(value) - mean, 2.0);
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    const double share = std::fmod(first + golden * static_cast<double>(f), 1.0);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
    std::ranges::nth_element(values, at);
    const double scale = deviation > 0.0 ? steepness / deviation : 1.0;
    bias[f] = static_cast<float>(-scale * static_cast<double>(*at));
    for (float& value : weight.subspan(f * width, width))
      value = static_cast<float>(scale * static_cast<double>(value));
  }
  filters.parameters().changed();
}

/// Means over sequences of what filters let pass, and what the sequences are.
struct Means {
  Index width = 0;
  std::vector<float> values;  // [n, width]
  std::vector<std::int32_t> labels;

  std::size_t count() const { return labels.size(); }
  std::span<const float> of(std::size_t i) const {
    return std::span(values).subspan(i * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
  void append(const Means& others) {
    values.insert(values.end(), others.values.begin(), others.values.end());
    labels.insert(labels.end(), others.labels.begin(), others.labels.end());
  }
};

/// Means over each row of the batch, weighted as the sums of the bank are, into columns from `first` on.
void add_means(const Example& example, std::span<const float> values, Index count, Index first, Index row,
               Means& means) {
  const double keep = 1.0 - 1.0 / nn::step_weight;
  std::vector<double> sums(static_cast<std::size_t>(count));
  for (Index b = 0; b < example.rows; ++b) {
    std::ranges::fill(sums, 0.0);
    double weights = 0.0;
    for (Index t = 0; t < length_of(example, b); ++t) {
      const float* const at = values.data() + (b * example.steps + t) * count;
      weights = keep * weights + 1.0;
      for (Index f = 0; f < count; ++f) sums[f] = keep * sums[f] + static_cast<double>(at[f]);
    }
    float* const to = means.values.data() + (row + b) * means.width + first;
    for (Index f = 0; f < count; ++f) to[f] = static_cast<float>(sums[f] / weights);
  }
}

/// Filters of every dilation, and how the means of a part of the data are taken.
class Bank {
 public:
  Bank(const ModelSpec& spec, const DataDescription& data, const Execution& execution)
      : spec_(spec), data_(data), execution_{.threads = execution.threads} {
    for (Index i = 0; i < spec.dilations; ++i) {
      dilations_.push_back(std::make_unique<Filters>(spec_, data_, i, execution_));
    }
  }

  void draw(const Sequences& sequences, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> spread(dilations_.front()->parameter("filters.spread.weight").size());
    draw_channels(data_, spread, random);
    for (Index i = 0; i < spec_.dilations; ++i) {
      std::ranges::copy(spread, dilations_[i]->parameter("filters.spread.weight").begin());
      draw_filters(*dilations_[i], spec_, data_, i, random);
      fit_thresholds(*dilations_[i], spec_, i, sequences, random);
    }
  }

  /// The filters that a model has, and back.
  void take_from(const Model& model) {
    const auto& from = model.impl().parameters;
    for (const auto& each : dilations_) nn::copy_shared(*from, each->parameters());
  }
  void give_to(Model& model) {
    for (const auto& each : dilations_) nn::copy_shared(each->parameters(), *model.impl().parameters);
  }

  Means means(const Sequences& sequences, Sequences::Part part) {
    Means means;
    means.width = spec_.filters * spec_.dilations;
    Index rows = 0;
    sequences.each(part, most_positions, [&](const Example& example) {
      for (Index b = 0; b < example.rows; ++b) {
        means.labels.push_back(example.labels[static_cast<std::size_t>(b * example.steps + length_of(example, b) - 1)]);
      }
      means.values.resize(means.labels.size() * static_cast<std::size_t>(means.width));
      for (Index i = 0; i < spec_.dilations; ++i) {
        const std::span<const float> values = dilations_[i]->run(example, nn::FilterValues::activations);
        add_means(example, values, spec_.filters, i * spec_.filters, rows, means);
      }
      rows += example.rows;
    });
    return means;
  }

  RidgeClassifier fit(const Means& means) const {
    return fit_ridge_classifier(means.values, means.labels, means.width, data_.output_size(), execution_);
  }

 private:
  ModelSpec spec_;
  DataDescription data_;
  Execution execution_;
  std::vector<std::unique_ptr<Filters>> dilations_;
};

/// Makes the bank of a model say what a classifier says of means, so many times.
void set_classifier(Model& model, const RidgeClassifier& classifier, double share) {
  Model::Impl& impl = model.impl();
  const Index classes = classifier.classes, kept = classes + 1, filters = impl.spec.filters;
  const auto parameter = [&](const std::string& name) {
    return impl.parameters->value(*impl.parameters->layout().find(name));
  };
  for (Index i = 0; i < impl.spec.dilations; ++i) {
    const std::string name = nn::filter_prefix(i) + ".evidence";
    const std::span<float> weight = parameter(name + ".weight");
    for (Index c = 0; c < classes; ++c) {
      for (Index f = 0; f < filters; ++f) {
        weight[c * filters + f] =
            static_cast<float>(share * classifier.weights[c * classifier.features + i * filters + f]);
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

/// What a model says at the end of each held-out sequence: logits [n, classes].
std::vector<double> held_out_logits(const Model& model, const Sequences& sequences, const Execution& execution) {
  const auto classes = static_cast<std::size_t>(model.data().output_size());
  std::vector<double> logits;
  sequences.each(Sequences::Part::held_out, most_positions, [&](const Example& example) {
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
Model with_room(const Model& from, Index filters, Index dilations) {
  ModelSpec spec = from.spec();
  spec.filters = filters;
  spec.dilations = dilations;
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
  require(LabelledBatches::of(data) != nullptr, "data must be labelled sequences to fit filters to");
  require(model.spec().filters == 0, "model must be one without filters, it has {} of each dilation",
          model.spec().filters);
  check_same_data(model.impl().data, data.description());
  const Lengths lengths = lengths_of(data);
  const Index dilations = dilations_for(lengths.median);
  Model wider = with_room(model, most_filters / dilations, dilations);
  const Sequences sequences(data, lengths.longest);
  Bank bank(wider.spec(), wider.data(), execution);
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

bool filters_stand_alone(const Dataset& data) { return data.held_out_steps() < training::fewest_to_judge; }

Model fit_filters(const Dataset& data, std::uint64_t seed, const Execution& execution) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  require(LabelledBatches::of(data) != nullptr, "data must be labelled sequences to fit filters to");
  const Lengths lengths = lengths_of(data);
  const Index dilations = dilations_for(lengths.median);
  Model model({.width = 1, .blocks = 0, .filters = most_filters / dilations, .dilations = dilations},
              data.description());
  std::ranges::fill(model.impl().parameters->values(), 0.0f);
  const Sequences sequences(data, lengths.longest);
  Bank bank(model.spec(), model.data(), execution);
  bank.draw(sequences, seed);
  bank.give_to(model);
  set_classifier(model, bank.fit(bank.means(sequences, Sequences::Part::training)), 1.0);
  return model;
}

void refit_filters(Model& model, const Dataset& data, const FilterShares& shares, const Execution& execution) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  if (model.spec().filters == 0 || LabelledBatches::of(data) == nullptr || data.held_out_steps() == 0) return;
  const Sequences sequences(data, lengths_of(data).longest);
  Bank bank(model.spec(), model.data(), execution);
  bank.take_from(model);
  Means all = bank.means(sequences, Sequences::Part::training);
  all.append(bank.means(sequences, Sequences::Part::held_out));
  set_classifier(model, bank.fit(all), shares.filters);
}

}  // namespace penstock
