#pragma once

#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

/// Throws Error(invalid_argument) naming the field that is impossible, on its own or together with the data.
/// Everything a file may claim is bounded here, before anything of that size is allocated.
void check_spec(const ModelSpec& spec, const DataDescription& data);

/// H of the recurrent layers.
Index hidden_size(const ModelSpec& spec);
/// Inner size F of the gated feed-forward, 0 without one.
Index feed_forward_size(const ModelSpec& spec);

/// Number of parameters of a checked spec, found without building anything.
Index parameter_count(const ModelSpec& spec, const DataDescription& data);

}  // namespace penstock::nn
