#pragma once

#include <cstddef>
#include <string>

namespace penstock::cli {

/// A bar of `width` cells and its two edges; with block characters an eighth of a cell is the smallest step.
std::string bar(double fraction, std::size_t width, bool utf8);

}  // namespace penstock::cli
