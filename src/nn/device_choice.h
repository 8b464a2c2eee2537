#pragma once

#include <string>

#include "penstock/device_choice.h"
#include "penstock/model.h"
#include "plan/machine.h"

namespace penstock::nn {

/// What lies between the host and a GPU, in microseconds. Bytes and start were measured on an H200's machine; the
/// others are assumed.
struct HostCosts {
  double recorded_launch = 1.2;  ///< Of a launch that is part of a recorded graph
  double copy = 12;              ///< Of a copy from or to the host that is waited for, without its bytes
  double copied_bytes = 10.5e3;  ///< Of such a copy, in a microsecond
  double start = 600e3;          ///< Of a process: the driver, its memory, kernels from the cache
};

/// Between the CPU and the GPU of a machine. `missing`: why there is none, or empty.
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing, const HostCosts& costs = {});
DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question, const plan::Machine& machine,
                           const std::string& missing, const HostCosts& costs = {});

}  // namespace penstock::nn
