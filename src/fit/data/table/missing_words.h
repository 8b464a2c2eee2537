#pragma once

#include <string_view>

namespace penstock::data {

/// Returns whether a field stands for a missing value: empty, or NA, N/A, NaN, NULL, None, ?, - in any case.
bool is_missing(std::string_view text);

}  // namespace penstock::data
