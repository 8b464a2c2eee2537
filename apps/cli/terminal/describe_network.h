#pragma once

#include <string>

#include "penstock/network.h"
#include "terminal/describe.h"

namespace penstock::cli {

/// Lines on inputs, outputs, states and operators of a network.
std::string network_text(const penstock::Network& network);
Json network_json(const penstock::Network& network);

}  // namespace penstock::cli
