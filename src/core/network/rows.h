#pragma once

#include <vector>

#include "network/preparation.h"

namespace penstock::network {

/// Sets the step's `n` to {rows, columns}, where a row goes over these axes of read 0; and its first loop to a copy
/// that makes rows of them, if they do not lie so.
void lay_in_rows(Preparation& p, const std::vector<Index>& axes);
/// Those rows in a run.
const std::byte* rows_of(const Step& step, const Memory& memory);

}  // namespace penstock::network
