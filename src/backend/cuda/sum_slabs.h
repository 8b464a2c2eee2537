#pragma once

namespace penstock::cuda {

#include "backend/cuda/kernels/sum_slabs_arguments.h"

}  // namespace penstock::cuda
