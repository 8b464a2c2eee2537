#pragma once

#include "penstock/data_description.h"
#include "penstock/model.h"

/// Checks of model specs, and the sizes that follow from them.
namespace penstock::nn {

/// Throws Error(invalid_argument) "<name> must be <low> to <high>, not <value>" for a value outside.
void check_range(const char* name, Index value, Index low, Index high);
/// Throws Error(invalid_argument) that names a field that is impossible, alone or with the data. Bounds everything that
/// a file may claim before memory of that size is allocated.
void check_spec(const ModelSpec& spec, const DataDescription& data);

/// Returns H of the recurrent layers.
Index hidden_size(const ModelSpec& spec);
/// Returns the inner size F of the gated feed-forward layers; 0 without them.
Index feed_forward_size(const ModelSpec& spec);

/// Returns the number of parameters of a checked spec, without building anything.
Index parameter_count(const ModelSpec& spec, const DataDescription& data);

}  // namespace penstock::nn
