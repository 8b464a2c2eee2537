#pragma once

#include <cstdint>
#include <vector>

#include "penstock/types.h"

/// The order in which labelled items are shown.
namespace penstock::data {

/// 0 .. count-1 in a random order that the seeds alone decide.
std::vector<Index> shuffled(Index count, std::uint64_t seed, std::uint64_t purpose);

}  // namespace penstock::data
