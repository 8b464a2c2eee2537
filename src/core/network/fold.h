#pragma once

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// Computes what depends on constants alone, replaces each If whose condition is one by its branch, and removes nodes
/// and constants that no output needs. Extents of inputs need not be known.
Status fold(Network& network);

}  // namespace penstock::network
