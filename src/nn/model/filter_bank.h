#pragma once

#include <string>

#include "nn/model/graph_builder.h"
#include "penstock/data_description.h"
#include "penstock/model.h"
#include "penstock/train/train.h"

/// A bank of convolution filters beside the layers of a model that labels sequences, after MiniRocket (Dempster,
/// Schmidt and Webb 2021): filters of nine taps, each with one dilation and one threshold, are drawn rather than
/// learnt, and a linear classifier reads the mean over the sequence of what passes the threshold. By linearity the
/// means are taken of what the classifier says of each step, a value for each class, so that a stream keeps no more
/// than these.
namespace penstock::nn {

constexpr Index filter_taps = 9;
/// The logit of the gate of the layer that keeps sums over the sequence. It forgets a share of 2^-16 at each step, so
/// that a stream without end stays finite; the same of sum and number of steps, whose ratio is a mean all the same.
constexpr double forgetting_logit = -11.090354888959125;  // ln(2^-16)
/// What counts steps adds at each one: the sum is then the number of steps, far from the norm's epsilon and far above
/// the sums that it divides.
constexpr double step_weight = 65536.0;

/// Filters come in banks, two of each dilation: those of the first read values, those of the second how much these are
/// more than at the step before, which shows shapes that hide behind large slow ones.
inline Index filter_banks(const ModelSpec& spec) { return 2 * spec.dilations; }
inline Index filters_of_bank(const ModelSpec& spec) { return spec.filters / 2; }
inline bool reads_differences(Index bank) { return bank % 2 == 1; }
/// Steps between two taps.
inline Index dilation_of(Index bank) { return Index{1} << (bank / 2); }
/// Steps that the filters of a bank span.
inline Index span_of(Index bank) { return (filter_taps - 1) * dilation_of(bank) + (reads_differences(bank) ? 2 : 1); }
/// How the names of the parameters of a bank begin: "filters.0".
std::string filter_prefix(Index bank);
/// Channels that filters read: the inputs, or mixtures of them where there are many.
Index filter_channels(const DataDescription& data);
double filter_bank_parameters(const ModelSpec& spec, const DataDescription& data);

/// What of the filters of one bank is wanted.
enum class FilterValues {
  sums,        ///< [B, T, 2 * filters of the bank]: what filters say, less their thresholds, and ones behind it
  activations  ///< [B, T, filters of the bank]: what is above the threshold
};
ValueId add_filters(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, Index bank,
                    FilterValues wanted, graph::Home home);
/// Adds what the bank says of each class so far to outputs [B, T, classes], which are masters.
void add_filter_bank(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, ValueId outputs);

}  // namespace penstock::nn
