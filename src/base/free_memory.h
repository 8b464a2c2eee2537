#pragma once

#include <cstddef>

namespace penstock {

/// Bytes of the host's memory that can be had without taking them from anybody; 0: not known.
std::size_t free_memory();

}  // namespace penstock
