#pragma once

namespace penstock::cuda {

#include "backend/cuda/kernels/product/sum_splits_arguments.h"

}  // namespace penstock::cuda
