#pragma once

#include <algorithm>

#include "penstock/types.h"

/// Sizes of the filters of labelled sequences (nn/closed_form/filter_branch.h), for models here and in the C runtime.
namespace penstock::nn {

/// Taps of a filter.
constexpr Index filter_taps = 9;

/// Returns the number of channels that filters read: the inputs, or mixtures of them if there are more than 16. More
/// would make the products long, and are rarely independent.
inline Index filter_channels(Index inputs) { return std::min<Index>(16, inputs); }
/// Returns whether the filters of a bank read differences from the previous step, which show shapes that large slow
/// changes hide. Those of the other banks read values.
inline bool reads_differences(Index bank) { return bank % 2 == 1; }
/// Returns the steps between two taps.
inline Index dilation_of(Index bank) { return Index{1} << (bank / 2); }
/// Returns the steps that a filter of a bank spans.
inline Index span_of(Index bank) { return (filter_taps - 1) * dilation_of(bank) + (reads_differences(bank) ? 2 : 1); }

}  // namespace penstock::nn
