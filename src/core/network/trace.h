#pragma once

#include <memory>
#include <span>
#include <vector>

#include "network/preparation.h"

namespace penstock::network {

/// Facts about each value of a network, for some shapes of its inputs. A value that no node writes in a run has none.
/// `owner` keeps the facts alive.
struct Trace {
  std::vector<Fact> facts;
  std::shared_ptr<const void> owner;
};

/// Prepares a network as Program::prepare() does.
Status trace(const Network& network, std::span<const Shape> inputs, Trace& trace);

}  // namespace penstock::network
