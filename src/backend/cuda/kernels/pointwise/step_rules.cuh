// step_rules.h for kernels.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "base/counter_random.h"

#define PENSTOCK_STEP PENSTOCK_DEVICE
#include "backend/cuda/kernels/pointwise/step_rules.h"
