// step_rules.h and schedules.h for kernels.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "base/counter_random.h"

/// cos() would need the stack for arguments that never come.
PENSTOCK_DEVICE double StepCosPi(double x) { return cospi(x); }

#define PENSTOCK_STEP PENSTOCK_DEVICE
#include "base/training/schedules.h"
#include "base/training/step_rules.h"
