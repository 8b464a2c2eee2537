#pragma once

#include <cmath>

#include "backend/cuda/pointwise/residual.h"

namespace penstock::cuda {

/// The parameters of a dropout, for the struct that a kernel's arguments have of it.
template <class Arguments>
Arguments dropout_arguments(const DropoutSite& dropout, DeviceAddress seed) {
  Arguments arguments{};
  arguments.seed = device_pointer<const unsigned long long>(seed);
  arguments.site = dropout.site;
  arguments.threshold = static_cast<unsigned>(std::ldexp(dropout.probability, 32));
  arguments.scale = static_cast<float>(1.0 / (1.0 - dropout.probability));
  return arguments;
}

}  // namespace penstock::cuda
