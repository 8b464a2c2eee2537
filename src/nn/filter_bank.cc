#include "nn/filter_bank.h"

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

ValueId add_dilation(GraphBuilder& builder, const ModelSpec& spec, Index dilation, ValueId spread, FilterValues wanted,
                     Home home) {
  const std::string name = filter_prefix(dilation);
  const Index taps = (filter_taps - 1) * dilation_of(dilation) + 1;
  const ValueId delayed = builder.fixed_convolution(name + ".delay", spread, taps);
  const bool sums = wanted == FilterValues::sums;
  const ValueId gates =
      builder.fixed_linear(name + ".combine", delayed, 2 * spec.filters, sums ? home : Home::workspace);
  return sums ? gates : builder.fixed_silu_gate(name + ".activation", gates, home);
}

}  // namespace

std::string filter_prefix(Index dilation) { return fmt::format("filters.{}", dilation); }

Index filter_channels(const DataDescription& data) {
  constexpr Index most = 16;  // more would make the products long, and are rarely independent
  return std::min(most, data.input_size());
}

double filter_bank_parameters(const ModelSpec& spec, const DataDescription& data) {
  if (spec.filters == 0) return 0.0;
  const auto real = [](Index n) { return static_cast<double>(n); };
  const double channels = real(filter_taps * filter_channels(data)), filters = real(spec.filters);
  const double classes = real(data.output_size()), kept = classes + 1.0;
  double all = channels * (real(data.input_size()) + 1.0) + 2.0 * kept * (kept + 1.0) + kept + classes * (kept + 1.0);
  for (Index i = 0; i < spec.dilations; ++i) {
    const double taps = real((filter_taps - 1) * dilation_of(i) + 1);
    all += channels * (taps + 1.0) + 2.0 * filters * (channels + 1.0) + kept * (filters + 1.0);
  }
  return all;
}

ValueId add_filters(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, Index dilation,
                    FilterValues wanted, Home home) {
  return add_dilation(builder, spec, dilation, add_spread(builder, data), wanted, home);
}

void add_filter_bank(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, ValueId outputs) {
  const Index classes = data.output_size();
  const ValueId spread = add_spread(builder, data);
  ValueId evidence;
  for (Index i = 0; i < spec.dilations; ++i) {
    const ValueId active = add_dilation(builder, spec, i, spread, FilterValues::activations, Home::workspace);
    // The last value counts steps.
    const ValueId of_dilation = builder.fixed_linear(filter_prefix(i) + ".evidence", active, classes + 1);
    if (evidence) builder.add(of_dilation, evidence);
    if (!evidence) evidence = of_dilation;
  }
  // The number of steps is by far the largest value, so that the norm divides by it: sums become means.
  const ValueId sums = builder.fixed_scan("filters.sum", evidence, pooling_cell);
  const ValueId means = builder.fixed_norm("filters.norm", sums);
  builder.add(builder.fixed_linear("filters.output", means, classes), outputs);
}

}  // namespace penstock::nn
