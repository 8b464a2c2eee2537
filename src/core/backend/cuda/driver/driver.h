#pragma once

#include <string>

#include "backend/cuda/driver/api.h"

namespace penstock::cuda {

/// Why there is no driver, or an empty string if there is one that works and at least one GPU. Never throws.
const std::string& driver_complaint();

/// The driver's functions. Throws Error(unsupported) with driver_complaint().
const DriverApi& driver();

/// The newest CUDA that the driver runs, as 1000 * major + 10 * minor; 0 without a driver. Does not start it.
int driver_cuda_version();

/// What to do if the GPU's memory is short although this process needs little of it.
inline constexpr const char* kSharedMemoryRemedy =
    "if other processes hold it (nvidia-smi lists them), end them or let them take less: JAX takes 75 % of a GPU, or "
    "what its XLA_PYTHON_CLIENT_MEM_FRACTION says";

/// Throws Error unless the result is success: out_of_memory, or device_failure with the driver's own words. `what` says
/// what was being done, as in "launching scan_forward".
void check(Result result, const char* what);

}  // namespace penstock::cuda
