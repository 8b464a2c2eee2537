#include "base/training/step_state.h"

#include "backend/cuda/kernels/pointwise/arguments.h"
