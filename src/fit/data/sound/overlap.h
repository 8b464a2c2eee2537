#pragma once

#include <span>
#include <string>

#include "penstock/data/sound.h"

namespace penstock::data {

/// The samples that a sound and its target share once the target is shifted.
struct Overlap {
  std::span<const float> sound, target;  ///< [count] each.
};

/// Returns the part of both sounds in which sample p of `sound` belongs to sample p + `latency` of `target`. Throws
/// Error(bad_input), with the names of both, for different sample rates, lengths that differ by more than the latency
/// and half a second, or no such part.
Overlap overlap_of(const Sound& sound, const Sound& target, Index latency, const std::string& sound_name,
                   const std::string& target_name);

}  // namespace penstock::data
