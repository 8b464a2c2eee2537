#pragma once

#include <string_view>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// Computes what depends on constants alone, replaces each If whose condition is one by its branch, and removes nodes
/// and constants that no output needs. Extents of inputs need not be known. Nodes of the operator `keep` stay even so,
/// and nodes with bodies, where such nodes may be.
Status fold(Network& network, std::string_view keep = {});

}  // namespace penstock::network
