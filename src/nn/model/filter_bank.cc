#include "nn/model/filter_bank.h"

#include <algorithm>

namespace penstock::nn {

using graph::Extent;
using graph::Home;

namespace {

constexpr const char* pooling_cell = "mingru";

/// Every channel once for each tap: a convolution of each channel by itself then delays it by as much as its tap says.
ValueId add_spread(GraphBuilder& builder, const DataDescription& data) {
  const ops::Target& target = builder.target();
  const ValueId features =
      builder.external("features", Home::features, Extent::positions, data.input_size(), target.master());
  // What stands beyond a row's length may be anything; the convolutions that follow put zeros there.
  return builder.fixed_linear("filters.spread", features, filter_taps * filter_channels(data));
}

ValueId add_bank(GraphBuilder& builder, const ModelSpec& spec, Index bank, ValueId spread, FilterValues wanted,
                 Home home) {
  const std::string name = filter_prefix(bank);
  const ValueId delayed = builder.fixed_convolution(name + ".delay", spread, span_of(bank));
  const bool sums = wanted == FilterValues::sums;
  const ValueId gates =
      builder.fixed_linear(name + ".combine", delayed, 2 * filters_of_bank(spec), sums ? home : Home::workspace);
  return sums ? gates : builder.fixed_silu_gate(name + ".activation", gates, home);
}

}  // namespace

std::string filter_prefix(Index bank) { return fmt::format("filters.{}", bank); }

Index filter_channels(const DataDescription& data) {
  constexpr Index most = 16;  // more would make the products long, and are rarely independent
  return std::min(most, data.input_size());
}

double filter_bank_parameters(const ModelSpec& spec, const DataDescription& data) {
  if (spec.filters == 0) return 0.0;
  const auto real = [](Index n) { return static_cast<double>(n); };
  const double channels = real(filter_taps * filter_channels(data)), filters = real(filters_of_bank(spec));
  const double classes = real(data.output_size()), kept = classes + 1.0;
  double all = channels * (real(data.input_size()) + 1.0) + 2.0 * kept * (kept + 1.0) + kept + classes * (kept + 1.0);
  for (Index bank = 0; bank < filter_banks(spec); ++bank) {
    all += channels * (real(span_of(bank)) + 1.0) + 2.0 * filters * (channels + 1.0) + kept * (filters + 1.0);
  }
  return all;
}

ValueId add_filters(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, Index bank,
                    FilterValues wanted, Home home) {
  return add_bank(builder, spec, bank, add_spread(builder, data), wanted, home);
}

void add_filter_bank(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, ValueId outputs) {
  const Index classes = data.output_size();
  const ValueId spread = add_spread(builder, data);
  ValueId evidence;
  for (Index bank = 0; bank < filter_banks(spec); ++bank) {
    const ValueId active = add_bank(builder, spec, bank, spread, FilterValues::activations, Home::workspace);
    // The last value counts steps.
    const ValueId of_bank = builder.fixed_linear(filter_prefix(bank) + ".evidence", active, classes + 1);
    if (evidence) builder.add(of_bank, evidence);
    if (!evidence) evidence = of_bank;
  }
  // The number of steps is by far the largest value, so that the norm divides by it: sums become means.
  const ValueId sums = builder.fixed_scan("filters.sum", evidence, pooling_cell);
  const ValueId means = builder.fixed_norm("filters.norm", sums);
  builder.add(builder.fixed_linear("filters.output", means, classes), outputs);
}

}  // namespace penstock::nn
