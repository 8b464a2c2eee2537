#pragma once

#include <vector>

#include "ops/recurrence.h"

namespace penstock::ops {

/// Layers on top of each other that are walked in the same direction, forward and without a tape: on several threads of
/// a CPU as a wavefront, a chunk of one layer beside the next chunk of the layer below; elsewhere one after the other.
///
/// x [B, T, I]; then for each layer: state_in or absent, the four weights, panels or absent -> for each layer: y [B, T,
/// H], state_out (may be state_in) or absent. All layers but the first read the y of the one below.
Op recurrence_stack(const std::vector<Recurrence>& layers);

}  // namespace penstock::ops
