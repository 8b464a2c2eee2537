#pragma once

#include <string>

#include "penstock/model.h"
#include "penstock/plan.h"
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

/// What a call takes on one device, as estimated, in microseconds.
struct CallTime {
  double work = 0;    ///< All nodes of its graph
  double copies = 0;  ///< From the host's memory and back
  double start = 0;   ///< Once, before the first call

  double of(Index calls) const { return start + static_cast<double>(calls) * (work + copies); }
};

/// Throws Error(unsupported) saying why the device of `question.execution` cannot.
CallTime call_time(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                   const plan::Machine& machine, const HostCosts& costs);

/// Between the CPU and the GPU of a machine. `missing`: why there is none, or empty.
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing, const HostCosts& costs = {});

}  // namespace penstock::nn
