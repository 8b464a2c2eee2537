#pragma once

#include <vector>

#include "network/preparation.h"

namespace penstock::network {

/// For each axis of a result, which position of read 0 each of its positions takes; -1: a value that pads.
using AxisMaps = std::vector<std::vector<Index>>;

/// Prepares result 0, whose shape has been declared: elements of read 0 from elsewhere. What pads is read 2 or zero.
void take_from(Preparation& p, const AxisMaps& maps, bool padded_by_read);

}  // namespace penstock::network
