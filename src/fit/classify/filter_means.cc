#include "classify/filter_means.h"

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/last_used_cache.h"
#include "base/random.h"
#include "data/batch.h"
#include "data/device_batch.h"
#include "graph/program.h"

namespace penstock::training {

/// The filters of one bank by themselves, with parameters of their own under the names that a model has for them.
class Filters {
 public:
  Filters(const nn::FilterBranch& filters, const DataDescription& data, Index bank, const Execution& execution)
      : filters_(filters),
        data_(data),
        bank_(bank),
        execution_(execution),
        parameters_(layout()),
        batch_(parameters_.weights()->queue()),
        copied_(parameters_.weights()->queue()) {}

  /// How many.
  Index count() const { return filters_.filters_of_bank(); }
  nn::Parameters<float>& parameters() { return parameters_; }
  std::span<float> parameter(const std::string& name) { return parameters_.value(*parameters_.layout().find(name)); }

  /// [B, T, 2 * count] or [B, T, count] of a batch; good until the next one.
  std::span<const float> run(const Example& example, nn::FilterValues wanted) {
    stop_if_asked();
    const ops::Target target = target_of(example, execution_);
    graph::Workspace& workspace = *workspaces_.get({target, wanted}, [&] {
      nn::GraphBuilder builder(target);
      filters_.add_filters(builder, data_, bank_, wanted, graph::Home::outputs);
      state_.resize(static_cast<std::size_t>(example.rows * builder.state_size()));
      auto made = std::make_unique<graph::Workspace>(std::make_shared<graph::Program>(builder.take_graph(), target),
                                                     parameters_.weights()->shared_queue());
      made->bind(parameters_.weights());
      return made;
    });
    std::ranges::fill(state_, 0.0f);
    const Index width = wanted == nn::FilterValues::sums ? 2 * count() : count();
    outputs_.resize(static_cast<std::size_t>(example.rows * example.steps * width));
    batch_.reserve(example);
    batch_.start_upload(example, staging_, copied_);
    batch_.bind(workspace);
    workspace.bind(graph::Home::outputs, outputs_.data());
    workspace.bind(graph::Home::state_in, state_.data());
    workspace.bind(graph::Home::state_out, state_.data());
    const ops::Call call = batch_.call(example, execution_);
    workspace.refresh(call);
    workspace.run(call);
    return outputs_;
  }

 private:
  nn::ParameterLayout layout() const {
    nn::GraphBuilder builder({});
    filters_.add_filters(builder, data_, bank_, nn::FilterValues::sums, graph::Home::outputs);
    return builder.layout();
  }

  nn::FilterBranch filters_;
  DataDescription data_;
  Index bank_;
  Execution execution_;
  nn::Parameters<float> parameters_;
  DeviceBatch batch_;
  std::optional<ops::StagingBuffer> staging_;
  ops::Marker copied_;
  LastUsedCache<std::pair<ops::Target, nn::FilterValues>, std::unique_ptr<graph::Workspace>> workspaces_{1};
  std::vector<float> state_, outputs_;
};

namespace {

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

/// Draws the channels that a filter reads: mostly few.
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

/// Taps and channels of every filter, as yet without a threshold. Those of a pair are the same.
void draw_filters(Filters& filters, const DataDescription& data, Index bank, Random& random) {
  const std::string name = nn::filter_prefix(bank);
  const Index channels = nn::filter_channels(data), width = nn::filter_taps * channels;
  const std::span<float> delay = filters.parameter(name + ".delay.weight");
  for (Index tap = 0; tap < nn::filter_taps; ++tap) {
    const auto at = delay.begin() + tap * nn::dilation_of(bank) * width + tap * channels;
    std::fill_n(at, channels, 1.0f);
    if (nn::reads_differences(bank)) std::fill_n(at + width, channels, -1.0f);
  }
  const std::span<float> combine = filters.parameter(name + ".combine.weight");
  for (Index f = 0; f < filters.count(); f += 2) {
    const auto taps = taps_of(f / 2);
    const std::span<float> first = combine.subspan(f * width, width);
    for (const Index channel : draw_subset(channels, random)) {
      for (Index tap = 0; tap < nn::filter_taps; ++tap) {
        first[tap * channels + channel] = taps[tap];
      }
    }
    std::ranges::copy(first, first.begin() + width);
  }
  // The open gate has bias 1, so that the activation is silu of the gate alone.
  const std::span<float> bias = filters.parameter(name + ".combine.bias");
  std::fill_n(bias.begin() + filters.count(), filters.count(), 1.0f);
  filters.parameters().changed();
}

/// Returns the sums of the first filter of each pair over some training sequences: [filters][positions], empty for the
/// second.
std::vector<std::vector<float>> sample_sums(Filters& filters, const Sequences& sequences) {
  const Index count = filters.count();
  constexpr Index sampled = 1 << 13;  // positions
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(count));
  sequences.each(Sequences::Part::training, 2 * sampled, [&](const Example& example) {
    const std::span<const float> values = filters.run(example, nn::FilterValues::sums);
    const Index every = std::max<Index>(1, example.rows * example.steps / sampled);
    for (Index b = 0, seen = 0; b < example.rows; ++b) {
      for (Index t = 0; t < length_of(example, b); ++t, ++seen) {
        if (seen % every != 0) continue;
        const float* const row = values.data() + (b * example.steps + t) * 2 * count;
        for (Index f = 0; f < count; f += 2) sums[f].push_back(row[f]);
      }
    }
  });
  return sums;
}

/// Thresholds are quantiles of what a filter says, and gates are steep beside its deviation. The gate of the second
/// filter of a pair opens later than that of the first: how much less it says goes from 0 to 2 around the threshold, so
/// that the mean of this is twice the share of steps that are above it.
void fit_thresholds(Filters& filters, Index bank, const Sequences& sequences, Random& random) {
  constexpr double steepness = 4.0, later = 1.0;
  constexpr double golden = 0.6180339887498949;  // multiples of it spread evenly over (0, 1)
  const std::string name = nn::filter_prefix(bank) + ".combine";
  const std::span<float> weight = filters.parameter(name + ".weight"), bias = filters.parameter(name + ".bias");
  const Index width = static_cast<Index>(weight.size()) / (2 * filters.count());
  auto sums = sample_sums(filters, sequences);
  const double first = random.uniform();
  for (Index f = 0; f < filters.count(); f += 2) {
    std::vector<float>& values = sums[f];
    double mean = 0.0, squares = 0.0;
    for (const float value : values) mean += static_cast<double>(value) / static_cast<double>(values.size());
    for (const float value : values) squares += std::pow(static_cast<double>(value) - mean, 2.0);
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    const double share = std::fmod(first + golden * static_cast<double>(f / 2), 1.0);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
    std::ranges::nth_element(values, at);
    const double scale = deviation > 0.0 ? steepness / deviation : 1.0;
    const double threshold = scale * static_cast<double>(*at);
    bias[f] = static_cast<float>(later - threshold);
    bias[f + 1] = static_cast<float>(-later - threshold);
    for (float& value : weight.subspan(f * width, 2 * width))
      value = static_cast<float>(scale * static_cast<double>(value));
  }
  filters.parameters().changed();
}

/// Means over each row of the batch, weighted as the sums of the bank are, into columns from `first` on: of each pair
/// that of the first filter, and by how much it is more than that of the second.
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
    for (Index f = 0; f < count; f += 2) {
      to[f] = static_cast<float>(sums[f] / weights);
      to[f + 1] = static_cast<float>((sums[f] - sums[f + 1]) / weights);
    }
  }
}

}  // namespace

Index length_of(const Example& example, Index row) {
  return example.lengths.empty() ? example.steps : example.lengths[row];
}

Sequences::Sequences(const Dataset& data) : data_(data) {
  // So that what a thousand filters say of a batch fits into some hundred megabytes.
  constexpr Index positions_of_batch = 1 << 14, most_rows = 32;
  std::vector<Index> all;
  Example example;
  for (Index i = 0; i < most && data.labelled_passes()->training(i, 1, example); ++i) {
    all.push_back(length_of(example, 0));
  }
  std::ranges::sort(all);
  median_length_ = all[all.size() / 2];
  rows_ = std::clamp<Index>(positions_of_batch / all.back(), 1, most_rows);
}

FilterMeans::FilterMeans(const nn::FilterBranch& filters, const DataDescription& data, const Execution& execution)
    : filters_(filters), data_(data), execution_{.threads = execution.threads} {
  for (Index bank = 0; bank < filters.banks(); ++bank) {
    banks_.push_back(std::make_unique<Filters>(filters_, data_, bank, execution_));
  }
}

FilterMeans::~FilterMeans() = default;

void FilterMeans::draw(const Sequences& sequences, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> spread(banks_.front()->parameter("filters.spread.weight").size());
  draw_channels(data_, spread, random);
  for (Index bank = 0; bank < filters_.banks(); ++bank) {
    Filters& filters = *banks_[bank];
    std::ranges::copy(spread, filters.parameter("filters.spread.weight").begin());
    draw_filters(filters, data_, bank, random);
    fit_thresholds(filters, bank, sequences, random);
  }
}

void FilterMeans::take_from(const Model& model) {
  for (const auto& each : banks_) nn::copy_shared(*model.impl().parameters, each->parameters());
}

void FilterMeans::give_to(Model& model) const {
  for (const auto& each : banks_) nn::copy_shared(each->parameters(), *model.impl().parameters);
}

Means FilterMeans::means(const Sequences& sequences, Sequences::Part part) {
  Means means;
  means.width = filters_.banks() * filters_.filters_of_bank();
  Index rows = 0;
  sequences.each(part, Sequences::most_positions, [&](const Example& example) {
    for (Index b = 0; b < example.rows; ++b) {
      means.labels.push_back(example.labels[static_cast<std::size_t>(b * example.steps + length_of(example, b) - 1)]);
    }
    means.values.resize(means.labels.size() * static_cast<std::size_t>(means.width));
    Index first = 0;
    for (const auto& bank : banks_) {
      const std::span<const float> values = bank->run(example, nn::FilterValues::activations);
      add_means(example, values, bank->count(), first, rows, means);
      first += bank->count();
    }
    rows += example.rows;
  });
  return means;
}

std::vector<double> weights_of_filters(const RidgeClassifier& classifier) {
  std::vector<double> weights = classifier.weights;
  for (std::size_t i = 0; i + 1 < weights.size(); i += 2) {
    weights[i] += classifier.weights[i + 1];
    weights[i + 1] *= -1.0;
  }
  return weights;
}

RidgeClassifier FilterMeans::fit(const Means& means) const {
  return fit_ridge_classifier(means.values, means.labels, means.width, data_.output_size(), execution_);
}

}  // namespace penstock::training
