// Every function of a driver, for those that have nothing to say: all is well.

#include "backend/cuda/driver/api.h"

#define PENSTOCK_FAKE(member, exported, parameters) \
  extern "C" __attribute__((weak)) penstock::cuda::Result exported parameters { return 0; }

using namespace penstock::cuda;
PENSTOCK_CUDA_DRIVER(PENSTOCK_FAKE)
