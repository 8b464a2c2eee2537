#pragma once

#include <span>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// Returns whether values become eight bits with ranges that are found at run time: DynamicQuantizeLinear, and
/// Recurrent with "quantised".
bool has_ranges(const Network& network);

/// Lets each row of a batch have ranges of its own. `one` and `two` are the shapes of all inputs for one row and for
/// two: an axis whose extent doubles from 1 is that of the rows. Returns a Status that names the first node whose rows
/// have no such axis, or lie in a body.
Status give_row_ranges(Network& network, std::span<const Shape> one, std::span<const Shape> two);

}  // namespace penstock::network
