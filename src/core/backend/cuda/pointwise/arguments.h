#pragma once

#include "backend/cuda/pointwise/step_state.h"

/// The parameters of the kernels between matrix products, as the host fills them in.
namespace penstock::cuda {

#include "backend/cuda/kernels/pointwise/arguments.h"

}  // namespace penstock::cuda
