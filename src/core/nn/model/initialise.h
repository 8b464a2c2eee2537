#pragma once

#include "nn/model/parameters.h"

/// Initial values of parameters.
namespace penstock::nn {

/// Writes initial values of all parameters of a layout. The same seed gives the same values in float and double, up to
/// rounding.
template <class Real>
void initialise(const ParameterLayout& layout, Real* values, std::uint64_t seed);

}  // namespace penstock::nn
