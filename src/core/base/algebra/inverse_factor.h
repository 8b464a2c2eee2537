#pragma once

#include <vector>

#include "penstock/types.h"

namespace penstock::training {

/// Replaces symmetric A [n, n], of which the lower triangle is read, by the inverse of the lower triangle L with
/// A = L L^T, zeros above it; false if A is not positive, and is spoilt.
bool invert_factor(std::vector<double>& a, Index n);

}  // namespace penstock::training
