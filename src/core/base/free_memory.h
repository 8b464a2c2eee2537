#pragma once

#include <cstddef>
#include <string>

namespace penstock {

/// Bytes of the host's memory that this process can still have: what the system has left, swap included, what the
/// control groups of the process allow (containers), and what its addresses may grow by (`ulimit -v`), whichever is
/// least. 0: not known; where nothing is left it is 1.
std::size_t free_memory();

/// Returns the free memory of a system whose /proc and /sys lie in folder `root`. Tests make such folders.
std::size_t free_memory(const std::string& root);

}  // namespace penstock
