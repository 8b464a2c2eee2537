#include "backend/cuda/kernels/pointwise/step_state.h"

#include "backend/cuda/kernels/pointwise/arguments.h"
