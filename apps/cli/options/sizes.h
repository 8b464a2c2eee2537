#pragma once

#include <string>
#include <vector>

#include "penstock/types.h"

namespace penstock::cli {

/// The numbers of a --shape such as "16x1024x256x512"; `names`, such as "BxTxIxH", say what they are. Throws
/// Error(invalid_argument) for another number of them.
std::vector<Index> parse_sizes(const std::string& text, const std::string& names);

}  // namespace penstock::cli
