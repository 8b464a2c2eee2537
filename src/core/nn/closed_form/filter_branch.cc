#include "nn/closed_form/filter_branch.h"

#include <algorithm>

#include "base/check.h"
#include "nn/model/model_spec.h"
#include "penstock/data_description.h"

namespace penstock::nn {

using graph::Home;

namespace {

constexpr const char* pooling_cell = "mingru";

/// Every channel once for each tap: a convolution of each channel by itself then delays it by as much as its tap says.
ValueId add_spread(GraphBuilder& builder, const DataDescription& data) {
  // Values beyond a row's length may be anything; the convolutions that follow put zeros there.
  return builder.fixed_linear("filters.spread", builder.features(data.input_size()),
                              filter_taps * filter_channels(data));
}

ValueId add_bank(GraphBuilder& builder, Index filters, Index bank, ValueId spread, FilterValues wanted, Home home) {
  const std::string name = filter_prefix(bank);
  const ValueId delayed = builder.fixed_convolution(name + ".delay", spread, span_of(bank));
  const bool sums = wanted == FilterValues::sums;
  const ValueId gates =
      builder.fixed_linear(name + ".combine", delayed, 2 * filters, sums ? home : Home::workspace, true);
  return sums ? gates : builder.fixed_silu_gate(name + ".activation", gates, home);
}

}  // namespace

std::string filter_prefix(Index bank) { return fmt::format("filters.{}", bank); }

Index filter_channels(const DataDescription& data) { return filter_channels(data.input_size()); }

void FilterBranch::check(const ModelSpec& /*spec*/, const DataDescription& data) const {
  constexpr Index most_filters = 65536;  // of a dilation
  constexpr Index most_dilations = 7;    // whose filters span 513 steps
  const Index filters = fields().filters;
  check_range("filters", filters, 0, most_filters);
  check_range("dilations", fields().dilations, filters > 0 ? 1 : 0, filters > 0 ? most_dilations : 0);
  require_argument(filters % 2 == 0, "filters", filters, "even, since half of them read differences");
  require(data.labels_sequences(), "filters must be 0 for a model that does not label sequences of numbers");
}

double FilterBranch::parameter_count(const DataDescription& data) const {
  const auto real = [](Index n) { return static_cast<double>(n); };
  const double channels = real(filter_taps * filter_channels(data)), filters = real(filters_of_bank());
  const double classes = real(data.output_size()), kept = classes + 1.0;
  double all = channels * (real(data.input_size()) + 1.0) + 2.0 * kept * (kept + 1.0) + kept + classes * (kept + 1.0);
  for (Index bank = 0; bank < banks(); ++bank) {
    all += channels * (real(span_of(bank)) + 1.0) + 2.0 * filters * (channels + 1.0) + kept * (filters + 1.0);
  }
  return all;
}

ValueId FilterBranch::add_filters(GraphBuilder& builder, const DataDescription& data, Index bank, FilterValues wanted,
                                  Home home) const {
  return add_bank(builder, filters_of_bank(), bank, add_spread(builder, data), wanted, home);
}

void FilterBranch::add_to(GraphBuilder& builder, const DataDescription& data, ValueId outputs) const {
  const Index classes = data.output_size();
  const ValueId spread = add_spread(builder, data);
  ValueId evidence;
  for (Index bank = 0; bank < banks(); ++bank) {
    const ValueId active =
        add_bank(builder, filters_of_bank(), bank, spread, FilterValues::activations, Home::workspace);
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
