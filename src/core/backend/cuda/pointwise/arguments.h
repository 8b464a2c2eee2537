#pragma once

#include "base/training_step.h"

/// The parameters of the kernels between matrix products, as the host fills them in.
namespace penstock::cuda {

#include "backend/cuda/kernels/pointwise/arguments.h"

}  // namespace penstock::cuda
