#include "backend/cuda/kernels/pointwise/training/step_state.h"

#include "backend/cuda/kernels/pointwise/arguments.h"
