#pragma once

#include <string>

#include "nn/model/parameters.h"

namespace penstock::nn {

/// Fresh values of all parameters of a layout, in its order. The same seed gives the same in float and double up to
/// rounding.
template <class Real>
void initialise(const ParameterLayout& layout, Real* values, std::uint64_t seed);

}  // namespace penstock::nn
