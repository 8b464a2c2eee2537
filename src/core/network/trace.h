#pragma once

#include <memory>
#include <span>
#include <vector>

#include "network/operators.h"

namespace penstock::network {

/// What is known of each value of a network for some shapes of its inputs: those that no node writes in a run have
/// nothing. `owner` keeps what is known alive.
struct Trace {
  std::vector<Fact> facts;
  std::shared_ptr<const void> owner;
};

/// Prepares a network as Program::prepare() does.
Status trace(const Network& network, std::span<const Shape> inputs, Trace& trace);

}  // namespace penstock::network
