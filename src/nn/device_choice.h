#pragma once

#include <string>

#include "penstock/data_description.h"
#include "penstock/device_choice.h"
#include "penstock/model.h"
#include "plan/machine.h"

namespace penstock::nn {

/// Between the CPU and the GPU of a machine. `missing`: why there is none, or empty.
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing);
DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question, const plan::Machine& machine,
                           const std::string& missing);

}  // namespace penstock::nn
