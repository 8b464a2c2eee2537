#pragma once

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// Checks what a network from a file claims: numbers of values, constants and bodies are in range; a value is written
/// once and before it is read; bodies have an input for each value that a node gives them; constants have the bytes of
/// their shapes; states have one type. What operators need of their values is checked when a network is prepared.
Status check(const Network& network);

/// Returns a Status that names the first node whose operator this library does not have. Bodies are left out: a branch
/// that has it may never be taken.
Status check_operators(const Network& network);

}  // namespace penstock::network
